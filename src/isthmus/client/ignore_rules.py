"""The rules of one `.gitignore` file, as git reads them, matched in linear time (`_kit/globs.py`).

A rule is judged against one path itself. That a folder which is left out takes everything below along is for whoever
walks the folders: nothing below is asked for then, and no rule can bring it back, which is git's way too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from isthmus._kit.globs import ANY_FOLDERS, PathGlob, Segment, segment

MAX_RULE = 4096
"""Characters of a rule; a longer one cannot match any path."""


class IgnoreRule(NamedTuple):
    """One line: either a pattern of names, at any depth, or one of whole paths below the file's folder."""

    leaves_out: bool
    """Whether it leaves out what it matches, or (with `!`) brings it back."""
    folders_only: bool
    name: Segment | None
    path: PathGlob | None


class IgnoreRules:
    """All rules of a file, in their order."""

    __slots__ = ("_rules",)

    def __init__(self, lines: Iterable[str]) -> None:
        found = [rule for line in lines if (rule := _rule(line)) is not None]
        self._rules = tuple(reversed(found))  # the last one that matches decides

    def __len__(self) -> int:
        return len(self._rules)

    def verdict(self, path: str, folder: bool) -> bool | None:
        """Whether a path, relative to the file's folder, is left out; None if no rule matches."""
        name = path.rpartition("/")[2]
        for leaves_out, folders_only, names, paths in self._rules:
            if folders_only and not folder:
                continue
            if names(name) if names is not None else paths is not None and paths.matches(path):
                return leaves_out
        return None


def _rule(line: str) -> IgnoreRule | None:
    text = _without_trailing_spaces(line)
    if not text or text.startswith("#") or len(text) > MAX_RULE:
        return None
    leaves_out = not text.startswith("!")
    text = text if leaves_out else text[1:]
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    if not text:
        return None
    anchored = text.startswith("/") or "/" in text
    parts = text.removeprefix("/").split("/")
    if not anchored and parts[0] != ANY_FOLDERS:
        return IgnoreRule(leaves_out, folders_only, segment(parts[0], escapes=True), None)
    found = [None if part == ANY_FOLDERS else segment(part, escapes=True) for part in parts]
    if found[-1] is None:  # `a/**` is everything inside, not the folder itself
        found.append(segment("*"))
    return IgnoreRule(leaves_out, folders_only, None, PathGlob(found))


def _without_trailing_spaces(line: str) -> str:
    """As git does: a space at the end counts only after a backslash."""
    text = line.rstrip("\r\n")
    kept = text.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return f"{kept} " if len(kept) < len(text) and backslashes % 2 else kept
