"""From a folder on this machine to a tree of content-addressed files: what `isthmus run` sends along.

First the folder is walked, honouring ignore files, and everything that cannot be sent is refused by name. Then
the files are hashed: small ones here, large ones in threads. `Folder.document` is the tree as the server keeps it
(`resources/work/trees.py`; a test holds the two together), `Folder.contents` says where each content is found.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from isthmus.errors import Invalid, TooLarge

from .hashes import HashCache, hash_file, unreadable
from .ignoring import CACHES, ENVIRONMENT_FILE, IGNORE_FILES, NEVER, Rules, rules_above, rules_in
from .requests import encode

MAX_FILES = 200_000
_MAX_PATH = 4096
_LARGE = 8 << 20
_CACHE_FROM_FILES = 64
_CACHE_FROM_BYTES = 4 << 20
_LEAVE_OUT = "or leave it out with a line in .isthmusignore"

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""
Notice = Callable[[str], None]
"""Called with a sentence about what was done unasked."""


class FolderLimits(NamedTuple):
    """How much may be sent without being asked to."""

    files: int = 2_000
    bytes: int = 100_000_000


class FolderEntry(NamedTuple):
    """One file or link of the folder."""

    path: str
    info: os.stat_result
    link: str | None = None


class Content(NamedTuple):
    """Where a content is found, and the state it was hashed in."""

    source: str
    info: os.stat_result


class Folder(NamedTuple):
    """A folder, hashed."""

    root: str
    document: bytes
    contents: Mapping[str, Content]
    files: int
    size: int
    environments: tuple[str, ...] = ()
    """Virtual environments that were left out."""


def read_folder(
    root: str | os.PathLike[str],
    *,
    limits: FolderLimits | None = None,
    cache_home: Path | None = None,
    progress: Progress | None = None,
    without: str | None = None,
) -> Folder:
    """Walk and hash a folder; raises Invalid that names what cannot be sent and what to do.

    What lies at `without`, a real path, is left out: an image that is sent along is no file of the job's.
    """
    top = os.path.realpath(root)
    if not os.path.isdir(top):  # noqa: PTH112
        raise Invalid(f"{os.fspath(root)} is not a folder; name the folder to send along")
    if limits is not None:
        _check_ordinary(top)
    environments: list[str] = []
    entries = walk(top, limits, environments, without=without)
    total = sum(entry.info.st_size for entry in entries if entry.link is None)
    digests = _hash_all(top, entries, total, cache_home, progress)
    files: list[dict[str, object]] = []
    contents: dict[str, Content] = {}
    count = size = 0
    for entry in sorted(entries):
        if entry.link is not None:
            files.append({"path": entry.path, "size": 0, "mode": 0o777, "link": entry.link})
        else:
            digest, info = digests[entry.path]
            mode = stat.S_IMODE(info.st_mode) & 0o777
            files.append({"path": entry.path, "size": info.st_size, "mode": mode, "digest": digest})
            contents.setdefault(digest, Content(f"{top}/{entry.path}", info))
            size += info.st_size
        count += 1
    return Folder(top, encode({"files": files}), contents, count, size, tuple(environments))


def with_file(folder: Folder | None, path: str, source: str) -> Folder:
    """The folder with one more file, from elsewhere on this machine; it takes the place of one of that name."""
    import json

    digest, info = hash_file(source, path)
    files = json.loads(folder.document)["files"] if folder else []
    files = [file for file in files if file["path"] != path and not file["path"].startswith(f"{path}/")]
    files.append({"path": path, "size": info.st_size, "mode": 0o600, "digest": digest})
    return Folder(
        folder.root if folder else "",
        encode({"files": sorted(files, key=lambda file: str(file["path"]))}),
        {**(folder.contents if folder else {}), digest: Content(source, info)},
        len(files),
        sum(file["size"] for file in files),
        folder.environments if folder else (),
    )


def is_everything(folder: str | os.PathLike[str]) -> bool:
    """Whether this is a whole disk, or everything that somebody owns: nobody means to send that unasked."""
    top = os.path.realpath(folder)
    return top == "/" or top == os.path.realpath(Path.home())


def report_left_out(folder: Folder, notice: Notice | None) -> None:
    """Say which virtual environments stay here."""
    if notice and folder.environments:
        names = ", ".join(sorted(folder.environments)[:3]) + (", …" if len(folder.environments) > 3 else "")
        notice(
            f"not sent along: {names}, because a virtual environment works only where it was made; "
            "a line for it in .isthmusignore ends this note"
        )


def _check_ordinary(top: str) -> None:
    if is_everything(top):
        raise TooLarge(
            f"{top} is not sent along as a whole; change to the folder of your work, "
            "name one with --files DIR, or send nothing with --no-files"
        )


def walk(
    top: str,
    limits: FolderLimits | None = None,
    environments: list[str] | None = None,
    *,
    without: str | None = None,
) -> list[FolderEntry]:
    """Every file and link that is to be sent; `environments` collects those that are not."""
    found: list[FolderEntry] = []
    size = 0
    # The last of each: whether it was asked for outright, and so is sent whatever it is.
    pending: list[tuple[str, Rules | None, bool]] = [("", rules_above(top), True)]
    while pending:
        below, rules, asked = pending.pop()
        here = f"{top}/{below}" if below else top
        try:
            with os.scandir(here) as scan:
                items = list(scan)
        except OSError as error:
            raise unreadable(below or top, error) from None
        if not asked and any(item.name == ENVIRONMENT_FILE for item in items):
            if environments is not None:
                environments.append(below)
            continue
        present = tuple(item.name for item in items if item.name in IGNORE_FILES)
        rules = rules_in(here, present, rules)
        for item in items:
            path = f"{below}/{item.name}" if below else item.name
            is_folder = item.is_dir(follow_symlinks=False)
            verdict = rules.verdict(item.path, is_folder) if rules else None
            if (
                item.path == without
                or item.name in NEVER
                or verdict
                or (verdict is None and item.name in CACHES and is_folder)
            ):
                continue
            if is_folder:
                pending.append((path, rules, verdict is False))
                continue
            entry = _entry(item, path)
            found.append(entry)
            size += entry.info.st_size if entry.link is None else 0
            _check_amount(top, len(found), size, limits)
    return found


def _entry(item: os.DirEntry[str], path: str) -> FolderEntry:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Invalid(f"the name {path!r} is not UTF-8; rename it {_LEAVE_OUT}") from None
    if len(path) > _MAX_PATH:
        raise Invalid(f"the path {path[:80]}… is longer than {_MAX_PATH} characters; shorten it {_LEAVE_OUT}")
    try:
        info = item.stat(follow_symlinks=False)
        if stat.S_ISLNK(info.st_mode):
            return FolderEntry(path, info, _link(path, str(Path(item.path).readlink())))
    except OSError as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(info.st_mode):
        raise Invalid(f"{path} is {_what(info.st_mode)}, which cannot be sent; remove it {_LEAVE_OUT}")
    return FolderEntry(path, info)


def _link(path: str, target: str) -> str:
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    try:
        target.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{path} is a link to {target!r}, which is not UTF-8; replace it {_LEAVE_OUT}") from None
    if target.startswith("/") or end == ".." or end.startswith("../"):
        raise Invalid(
            f"{path} is a link to {target}, outside the folder, and would lead nowhere where the job runs; "
            f"put a copy in its place {_LEAVE_OUT}"
        )
    return target


def _what(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"


def _check_amount(top: str, files: int, size: int, limits: FolderLimits | None) -> None:
    if files > MAX_FILES:
        raise TooLarge(f"{top} has more than {MAX_FILES} files; pack them, or leave some out with .isthmusignore")
    if limits and (files > limits.files or size > limits.bytes):
        what = f"{limits.files} files" if files > limits.files else f"{limits.bytes // 1_000_000} MB"
        raise TooLarge(
            f"{top} has more than {what}, too much to send along unasked; say --files DIR to send it all the same, "
            "--no-files to send nothing, or leave things out with .gitignore or .isthmusignore"
        )


def _hash_all(
    top: str, entries: list[FolderEntry], total: int, cache_home: Path | None, progress: Progress | None
) -> dict[str, tuple[str, os.stat_result]]:
    """The digest of every file, and the state of the file it belongs to."""
    files = [entry for entry in entries if entry.link is None]
    worthwhile = len(files) >= _CACHE_FROM_FILES or total >= _CACHE_FROM_BYTES
    cache = HashCache.for_folder(top, cache_home) if cache_home and worthwhile else None
    found: dict[str, tuple[str, os.stat_result]] = {}
    rest = []
    for entry in files:
        if cache and (known := cache.get(entry.path, entry.info)):
            found[entry.path] = known, entry.info
        else:
            rest.append(entry)
    done = total - sum(entry.info.st_size for entry in rest)
    for entry, (digest, info) in _hash_each(top, rest):
        found[entry.path] = digest, info
        done += info.st_size
        if cache:
            cache.put(entry.path, info, digest)
        if progress:
            progress(done, total)
    if cache:
        cache.save()
    return found


def _hash_each(top: str, entries: list[FolderEntry]) -> list[tuple[FolderEntry, tuple[str, os.stat_result]]]:
    large = [entry for entry in entries if entry.info.st_size >= _LARGE]
    small = [entry for entry in entries if entry.info.st_size < _LARGE]
    done = [(entry, hash_file(f"{top}/{entry.path}", entry.path)) for entry in small]
    if large:
        from concurrent.futures import ThreadPoolExecutor  # hashing large blocks runs outside the interpreter's lock

        with ThreadPoolExecutor(min(4, len(large))) as pool:
            done += zip(large, pool.map(lambda e: hash_file(f"{top}/{e.path}", e.path), large), strict=True)
    return done
