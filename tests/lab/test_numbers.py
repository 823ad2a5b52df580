"""The number of a lab stays its own while the lab is down."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from isthmus.errors import Misconfigured
from isthmus.lab import numbers
from isthmus.lab.layout import LabPlace


class Place(LabPlace):
    """A sort of lab that nobody else has on this machine."""

    interface = "istest"
    network = "10.213"
    ports = 27_000
    node_prefix = "test"


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setattr(numbers, "_NOTES", folder)
    return folder


def free(root: Path) -> int:
    return numbers.free_number(root, lambda number: Place(root, number))


def made(root: Path, number: int) -> Place:
    root.mkdir()
    (root / "number").write_text(str(number))
    return Place.of(root)


def test_nobody_gets_the_number_of_a_lab_that_is_down(tmp_path: Path, notes: Path) -> None:
    first = made(tmp_path / "a", free(tmp_path / "a"))
    assert free(tmp_path / "a") == first.number, "a number that is only thought of is free"
    numbers.hold(first)
    numbers.hold(first)  # coming up again changes nothing
    assert free(tmp_path / "a") != first.number, "another lab of the same name is another lab"
    numbers.let_go(Place(tmp_path / "b", first.number))
    assert free(tmp_path / "a") != first.number, "only its own lab lets it go"
    numbers.let_go(first)
    assert free(tmp_path / "a") == first.number
    assert list(notes.iterdir()) == []


def test_the_number_of_a_lab_whose_files_are_gone_is_free(tmp_path: Path) -> None:
    first = made(tmp_path / "a", free(tmp_path / "a"))
    numbers.hold(first)
    shutil.rmtree(first.root)
    assert free(tmp_path / "a") == first.number
    second = made(tmp_path / "b", first.number)
    numbers.hold(second)
    numbers.hold(second)


def test_a_lab_that_lost_its_number_says_to_whom(tmp_path: Path) -> None:
    number = free(tmp_path / "a")
    numbers.hold(made(tmp_path / "a", number))
    with pytest.raises(Misconfigured, match=rf"number {number} to the one in {tmp_path}/a\. .*down --erase"):
        numbers.hold(made(tmp_path / "b", number))


def test_a_port_that_another_program_has_is_named(tmp_path: Path) -> None:
    place = made(tmp_path / "a", free(tmp_path / "a"))
    with socket.create_server(("127.0.0.1", place.port(3))):
        with pytest.raises(Misconfigured, match=rf"Another program has port {place.port(3)} of the lab in .*/a; "):
            numbers.hold(place)
        assert free(tmp_path / "a") != place.number
    numbers.hold(place)
