"""Folders on this machine as trees, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from isthmus.client import hashes
from isthmus.client.folders import FolderLimits, is_everything, read_folder, report_left_out
from isthmus.client.ignoring import sort_out
from isthmus.errors import Invalid, TooLarge
from isthmus.resources.frame.validation import parse
from isthmus.resources.work.trees import Tree


def paths(root: Path, **options: Any) -> list[str]:
    document = json.loads(read_folder(root, **options).document)
    return [file["path"] for file in document["files"]]


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def test_the_document_is_the_one_the_server_keeps(tmp_path: Path) -> None:
    put(tmp_path, "b.txt", "a/x.py", "a.txt")
    (tmp_path / "a" / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "a" / "run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("a/x.py")
    folder = read_folder(tmp_path)
    tree = parse(Tree, json.loads(folder.document))
    assert tree.encode() == folder.document
    assert tree.digests == set(folder.contents)
    assert tree.total_bytes == folder.size
    assert {f.path: f.mode for f in tree.files}["a/run.sh"] == 0o755
    assert {f.path: f.digest for f in tree.files}["b.txt"] == f"sha256:{hashlib.sha256(b'b.txt').hexdigest()}"


def test_gitignore_as_git_does(tmp_path: Path) -> None:
    put(tmp_path, "keep.py", "a.log", "b/c.log", "b/important.log", "build/x", "b/build/y", "data/big", "doc/build")
    put(tmp_path, ".git/config", "sub/.git/config", "c/only.tmp", "only.tmp")
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n# comment\n/only.tmp\n")
    (tmp_path / "b" / ".gitignore").write_text("!important.log\n")
    (tmp_path / ".isthmusignore").write_text("data\n")
    assert paths(tmp_path) == [
        ".gitignore", ".isthmusignore", "b/.gitignore", "b/important.log", "c/only.tmp", "doc/build", "keep.py",
    ]  # fmt: skip


def test_a_browser_leaves_out_what_the_command_line_does(tmp_path: Path) -> None:
    put(tmp_path, "keep.py", "a.log", "b/c.log", "b/important.log", "build/x", "b/build/y", "data/big", "doc/build")
    put(tmp_path, ".git/config", "sub/.git/config", "c/only.tmp", "only.tmp", "d/__pycache__/x.pyc", "env/pyvenv.cfg")
    put(tmp_path, "env/bin/python", "kept/__pycache__/x.pyc", "build/keep/me")
    ignore = {
        ".gitignore": "*.log\nbuild/\n# comment\n/only.tmp\n!keep/me\n",
        "b/.gitignore": "!important.log\n",
        ".isthmusignore": "data\n!kept/__pycache__/\n",
    }
    for name, text in ignore.items():
        (tmp_path / name).write_text(text)
    found = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    sent, left_out = sort_out(found, ignore)
    assert sorted(sent) == sorted(paths(tmp_path))
    assert left_out == [
        ".git/", "a.log", "b/build/", "b/c.log", "build/", "d/__pycache__/", "data/", "env/", "only.tmp", "sub/.git/",
    ]  # fmt: skip


def test_isthmusignore_goes_over_gitignore(tmp_path: Path) -> None:
    put(tmp_path, "model.bin", "other.bin")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    (tmp_path / ".isthmusignore").write_text("!model.bin\n")
    assert "model.bin" in paths(tmp_path)
    assert "other.bin" not in paths(tmp_path)


def test_rules_of_the_repository_above_count(tmp_path: Path) -> None:
    put(tmp_path, ".git/config", "part/a.log", "part/a.py")
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert paths(tmp_path / "part") == ["a.py"]


def test_rules_above_without_a_repository_do_not_count(tmp_path: Path) -> None:
    put(tmp_path, "part/a.log")
    (tmp_path / ".gitignore").write_text("*.log\n")
    assert paths(tmp_path / "part") == ["a.log"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../elsewhere", "sub/../../x"])
def test_links_outside_are_refused_by_name(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "bad").symlink_to(target)
    with pytest.raises(Invalid, match=r"bad is a link to .*outside.*\.isthmusignore"):
        read_folder(root)


def test_links_inside_are_kept_even_to_nowhere(tmp_path: Path) -> None:
    put(tmp_path, "d/x")
    (tmp_path / "to-folder").symlink_to("d")
    (tmp_path / "d" / "up").symlink_to("../missing")
    assert paths(tmp_path) == ["d/up", "d/x", "to-folder"]


def test_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Invalid, match="pipe is a named pipe"):
        read_folder(tmp_path)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        with pytest.raises(Invalid, match="sock is a socket"):
            read_folder(tmp_path)


def test_ignored_things_may_be_anything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bad").symlink_to("/etc/passwd")
    (tmp_path / ".isthmusignore").write_text("pipe\nbad\n.isthmusignore\n")
    assert paths(tmp_path) == []


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt"))).write_text("x")
    with pytest.raises(Invalid, match="not UTF-8"):
        read_folder(tmp_path)


def test_an_unreadable_file_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "secret")
    real = os.open

    def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)  # root may read everything, so the refusal is made here
    with pytest.raises(Invalid, match=r"secret cannot be read.*make it readable"):
        read_folder(tmp_path)


def test_a_file_that_keeps_changing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "busy")
    real = os.read

    def write_meanwhile(descriptor: int, size: int) -> bytes:
        with (tmp_path / "busy").open("a") as file:
            file.write("more")
        return real(descriptor, size) if os.fstat(descriptor).st_size < 100 else b""

    monkeypatch.setattr(os, "read", write_meanwhile)
    with pytest.raises(Invalid, match="busy changes while it is being read"):
        read_folder(tmp_path)


def test_a_file_missing_or_a_file_as_folder(tmp_path: Path) -> None:
    put(tmp_path, "file")
    for wrong in (tmp_path / "file", tmp_path / "missing"):
        with pytest.raises(Invalid, match="is not a folder"):
            read_folder(wrong)


def test_limits_hold_only_where_asked_for(tmp_path: Path) -> None:
    put(tmp_path, *(f"f{i}" for i in range(6)))
    assert len(paths(tmp_path)) == 6
    with pytest.raises(TooLarge, match=r"5 files.*--files DIR.*--no-files"):
        read_folder(tmp_path, limits=FolderLimits(files=5))
    with pytest.raises(TooLarge, match="0 MB"):
        read_folder(tmp_path, limits=FolderLimits(bytes=3))


@pytest.mark.parametrize("where", ["/", "home"])
def test_a_whole_disk_or_home_is_not_sent_by_default(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(TooLarge, match="--no-files"):
        read_folder("/" if where == "/" else tmp_path, limits=FolderLimits())


def _many(root: Path) -> None:
    put(root, *(f"f{i:03}" for i in range(100)))
    for file in root.iterdir():
        os.utime(file, ns=(1_000_000_000, 1_000_000_000))


def test_hashes_are_remembered_and_never_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    root.mkdir()
    _many(root)
    monkeypatch.setattr(hashes, "_YOUNG", -1)  # pretend that everything is old
    first = read_folder(root, cache_home=cache)
    read: list[str] = []
    real = hashes.hash_file

    def counted(path: str, shown: str) -> tuple[str, os.stat_result]:
        read.append(shown)
        return real(path, shown)

    monkeypatch.setattr("isthmus.client.folders.hash_file", counted)
    assert read_folder(root, cache_home=cache).document == first.document
    assert read == []
    (root / "f001").write_text("f9")  # another size
    (root / "f002").write_text("F002")  # the same size
    changed = read_folder(root, cache_home=cache)
    assert sorted(read) == ["f001", "f002"]
    assert changed.document != first.document


def test_young_files_are_never_remembered(tmp_path: Path) -> None:
    """An edit within the clock's grain leaves size and times as they were: it must not be missed."""
    root, cache = tmp_path / "root", tmp_path / "cache"
    root.mkdir()
    _many(root)  # mtime long ago, but ctime is now
    read_folder(root, cache_home=cache)
    kept = json.loads(next((cache / "isthmus" / "hashes").iterdir()).read_text())
    assert kept == {}


def test_a_damaged_cache_is_no_harm(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    root.mkdir()
    _many(root)
    first = read_folder(root, cache_home=cache)
    file = next((cache / "isthmus" / "hashes").iterdir())
    for damage in ("{", "[]", '{"f000": 3}', ""):
        file.write_text(damage)
        assert read_folder(root, cache_home=cache).document == first.document


def test_a_cache_that_cannot_be_written_is_no_harm(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    _many(root)
    blocked = tmp_path / "cache"
    blocked.write_text("a file where a folder should be")
    assert read_folder(root, cache_home=blocked).files == 100


def test_large_files_are_hashed_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.client.folders._LARGE", 4)
    put(tmp_path, "aaaaaa", "bbbbbb", "c")
    used: set[str] = set()
    done: list[tuple[int, int]] = []
    real = hashes.hash_file

    def noted(path: str, shown: str) -> tuple[str, os.stat_result]:
        used.add(f"{shown} {threading.current_thread() is threading.main_thread()}")
        return real(path, shown)

    monkeypatch.setattr("isthmus.client.folders.hash_file", noted)
    folder = read_folder(tmp_path, progress=lambda d, t: done.append((d, t)))
    assert used == {"aaaaaa False", "bbbbbb False", "c True"}
    assert done[-1] == (13, 13)
    assert folder.size == 13


def test_virtual_environments_and_caches_stay_here(tmp_path: Path) -> None:
    put(tmp_path, "a.py", "__pycache__/a.pyc", "deep/.ipynb_checkpoints/x", "deep/env/pyvenv.cfg", "deep/b.py")
    (tmp_path / "deep" / "env" / "python").symlink_to("/usr/bin/python3")
    folder = read_folder(tmp_path)
    assert [file["path"] for file in json.loads(folder.document)["files"]] == ["a.py", "deep/b.py"]
    assert folder.environments == ("deep/env",)
    reported: list[str] = []
    report_left_out(folder, reported.append)
    assert len(reported) == 1
    assert "deep/env" in reported[0]
    report_left_out(read_folder(tmp_path / "deep" / ".ipynb_checkpoints"), reported.append)
    assert len(reported) == 1


def test_environments_that_are_asked_for_are_sent(tmp_path: Path) -> None:
    put(tmp_path, "env/pyvenv.cfg", "env/lib/x.py", "__pycache__/a.pyc", "other/pyvenv.cfg")
    (tmp_path / ".isthmusignore").write_text("!env/\n!__pycache__/\nother/\n")
    folder = read_folder(tmp_path)
    assert paths(tmp_path) == [".isthmusignore", "__pycache__/a.pyc", "env/lib/x.py", "env/pyvenv.cfg"]
    assert folder.environments == ()  # one was asked for, one is ignored by name: there is nothing to tell
    assert paths(tmp_path / "env") == ["lib/x.py", "pyvenv.cfg"]


def test_what_counts_as_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert is_everything("/")
    assert is_everything(tmp_path)
    put(tmp_path, "work/a")
    assert not is_everything(tmp_path / "work")
