"""Boards are found in the kernel's lists, and proposed by our own table of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.agent.board_finding import find_boards
from isthmus.engines.agent.boards import KINDS, manifest_of, parse_boards, propose
from isthmus.resources.deviceclasses import DeviceClass


def machine(root: Path, model: str = "") -> Path:
    pci = {
        "0000:00:02.0": ("0x8086", "0x46a6", "0x030000"),
        "0000:01:00.0": ("0x10de", "0x2684", "0x030000"),
        "0000:01:00.1": ("0x10de", "0x22ba", "0x040300"),
        "0000:02:00.0": ("0x10de", "0x2684", "0x030200"),
        "0000:03:00.0": ("0x1e7c", "0xbca1", "0x118000"),
        "0000:04:00.0": ("0x1234", "0x0001", "0x020000"),
    }
    for address, (vendor, device, kind) in pci.items():
        folder = root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        for name, value in (("vendor", vendor), ("device", device), ("class", kind)):
            (folder / name).write_text(f"{value}\n")
    stick = root / "sys/bus/usb/devices/1-2"
    stick.mkdir(parents=True)
    for name, value in (("idVendor", "03e7"), ("idProduct", "2485"), ("product", "Movidius MyriadX")):
        (stick / name).write_text(f"{value}\n")
    (root / "sys/bus/usb/devices/1-2:1.0").mkdir()  # an interface of it, which has no numbers
    if model:
        file = root / "sys/firmware/devicetree/base/model"
        file.parent.mkdir(parents=True)
        file.write_bytes(model.encode() + b"\0")
    return root


def test_boards_on_pci_and_usb_are_found_and_proposed(tmp_path: Path) -> None:
    said = [list(one) for one in find_boards(machine(tmp_path))]
    proposed = {one.name: (one.count, one.found) for one in propose(parse_boards(said))}
    assert proposed == {
        "nvidia-gpu": (2, "pci 10de:2684"),
        "akida": (1, "pci 1e7c:bca1"),
        "myriad-x": (1, "usb 03e7:2485 Movidius MyriadX"),
    }


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA Jetson Orin Nano Developer Kit", "jetson-orin"),
        ("NVIDIA Jetson Xavier NX", "jetson-xavier"),
        ("NVIDIA Jetson Nano Developer Kit", "jetson-nano"),
        ("Raspberry Pi 5 Model B Rev 1.0", None),
    ],
)
def test_a_machine_can_be_a_board_itself(tmp_path: Path, model: str, name: str | None) -> None:
    modules = [one for one in find_boards(machine(tmp_path, model)) if one.bus == "module"]
    assert [one.name for one in modules] == [model]
    assert [one.name for one in propose(modules)] == ([name] if name else [])


def test_a_machine_without_any_of_it_has_none(tmp_path: Path) -> None:
    assert find_boards(tmp_path) == []


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_class_that_can_be_proposed_can_be_created(name: str) -> None:
    assert DeviceClass.model_validate(manifest_of(name)).name == name


def test_what_a_machine_says_of_its_boards_is_not_believed() -> None:
    for said in (
        None,
        "x",
        [["pci", "10de:2684", "x"]],
        [["pci", "../..", "", ""]],
        [["disk", "10de:2684", "", ""]],
        [7],
    ):
        assert parse_boards(said) == []
    (one,) = parse_boards([["usb", "03e7:2485", "a\x1b[31mb" * 100, "z" * 100]])
    assert "\x1b" not in one.name
    assert len(one.name) <= 100
    assert len(propose(parse_boards([["pci", "10de:2684", "", "030000"]] * 1000))) == 1
