"""Packs as they are sent, and archives unpacked without trusting them."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from isthmus.client.folders import read_folder
from isthmus.client.packs import pack_body, unpack
from isthmus.errors import Invalid


def test_a_pack_holds_each_content_once_and_is_as_long_as_it_says(tmp_path: Path) -> None:
    for name, size in (("a", 0), ("b", 1), ("c", 511), ("d", 512), ("e", 513), ("f", 300_000), ("same", 513)):
        (tmp_path / name).write_bytes(b"x" * size)
    folder = read_folder(tmp_path)
    seen: list[tuple[int, int]] = []
    body = pack_body(folder.contents, sorted(folder.contents), lambda done, total: seen.append((done, total)))
    data = b"".join(body.chunks())
    assert len(data) == body.length
    assert b"".join(body.chunks()) == data, "a body can be sent again"
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert {m.name: m.size for m in archive} == {d: c.info.st_size for d, c in folder.contents.items()}
    assert seen[-1] == (301_537, 301_537)


@pytest.mark.parametrize("change", ["longer", "shorter", "same size", "gone", "link"])
def test_a_file_edited_after_it_was_hashed_is_an_error(tmp_path: Path, change: str) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"12345")
    folder = read_folder(tmp_path)
    body = pack_body(folder.contents, list(folder.contents))
    if change == "gone":
        file.unlink()
    elif change == "link":
        file.unlink()
        file.symlink_to("/etc/passwd")
    else:
        file.write_bytes({"longer": b"123456", "shorter": b"1", "same size": b"54321"}[change])
        os.utime(file, ns=(1, 1))
    with pytest.raises(Invalid, match=r"x (changed while|cannot be read)"):
        b"".join(body.chunks())


def archive(*members: tuple[str, bytes | str]) -> io.BytesIO:
    """Files from bytes, links from text."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.mode = 0o750
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                made.addfile(info)
            else:
                info.size = len(content)
                made.addfile(info, io.BytesIO(content))
    stream.seek(0)
    return stream


def test_files_and_links_arrive(tmp_path: Path) -> None:
    target = tmp_path / "new" / "place"
    written = unpack(archive(("out/a.csv", b"1,2\n"), ("run.sh", b"#!"), ("latest", "out/a.csv")), target)
    assert sorted(written) == ["latest", "out/a.csv", "run.sh"]
    assert (target / "latest").read_bytes() == b"1,2\n"
    assert (target / "run.sh").stat().st_mode & 0o777 == 0o750


def test_what_is_there_is_replaced_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    target = tmp_path / "target"
    target.mkdir()
    (target / "a").write_text("old")
    (target / "b").symlink_to(outside)
    unpack(archive(("a", b"new"), ("b", b"new")), target)
    assert (target / "a").read_text() == (target / "b").read_text() == "new"
    assert outside.read_text() == "untouched"
    assert not list(target.glob(".isthmus-*"))


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a//b", "./a", "a/.."])
def test_paths_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    with pytest.raises(Invalid, match="not a path inside"):
        unpack(archive((name, b"x")), target)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_folder_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "out").symlink_to(outside)
    with pytest.raises(Invalid, match="is a link"):
        unpack(archive(("out/x", b"x")), target)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("to", ["/etc/passwd", "../x", "a/../../x"])
def test_links_that_lead_out_are_not_made(tmp_path: Path, to: str) -> None:
    with pytest.raises(Invalid, match="outside the folder"):
        unpack(archive(("bad", to)), tmp_path / "t")
    assert not (tmp_path / "t" / "bad").is_symlink()


@pytest.mark.parametrize(
    "links",
    [
        {"a": ".", "b": "a/.."},
        {"deep/a": "..", "b": "deep/a/../../x"},
        {"a": "b", "b": "c", "c": ".", "out": "a/../etc/passwd"},
    ],
)
def test_links_that_lead_out_through_each_other_are_not_made(tmp_path: Path, links: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="outside the folder"):
        unpack(archive(*links.items()), tmp_path / "t")
    assert not [path for path in (tmp_path / "t").rglob("*") if path.is_symlink()]


def test_a_link_that_leads_out_through_one_that_was_there_is_not_made(tmp_path: Path) -> None:
    target = tmp_path / "t"
    target.mkdir()
    (target / "there").symlink_to(tmp_path)
    with pytest.raises(Invalid, match="outside the folder"):
        unpack(archive(("new", "there/x")), target)
    assert not (target / "new").is_symlink()


def test_links_among_each_other_and_in_circles_are_made(tmp_path: Path) -> None:
    links = {"runs/last": "1", "runs/best": "last", "here": "runs/../runs", "round": "again", "again": "round"}
    assert sorted(unpack(archive(*links.items()), tmp_path / "t")) == sorted(links)


def test_a_link_and_then_a_file_through_it(tmp_path: Path) -> None:
    target = tmp_path / "t"
    with pytest.raises(Invalid, match="a folder where the archive has a link"):
        unpack(archive(("d", "e"), ("d/x", b"x")), target)
    assert not (target / "e").exists()


def test_a_device_is_refused_and_a_cut_archive_told(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        info = tarfile.TarInfo("dev")
        info.type = tarfile.CHRTYPE
        made.addfile(info)
    stream.seek(0)
    with pytest.raises(Invalid, match="neither a file nor a link"):
        unpack(stream, tmp_path)
    whole = archive(("big", b"x" * 100_000)).getvalue()
    with pytest.raises(Invalid, match="damaged"):
        unpack(io.BytesIO(whole[:50_000]), tmp_path)
    assert not (tmp_path / "big").exists()


def test_a_prefix_goes_before_every_path_and_is_no_way_out(tmp_path: Path) -> None:
    assert unpack(archive(("out/x", b"x"), ("link", "out/x")), tmp_path / "t", "3/") == ["3/out/x", "3/link"]
    assert (tmp_path / "t" / "3" / "link").read_bytes() == b"x"
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "t" / "4").symlink_to(outside)
    with pytest.raises(Invalid, match="is a link"):
        unpack(archive(("x", b"x")), tmp_path / "t", "4/")
    assert list(outside.iterdir()) == []
