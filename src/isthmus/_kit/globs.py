"""Glob patterns over paths, matched in time that grows only with pattern times path: whoever writes the pattern.

A path is matched segment by segment. Within a segment (a file name) a pattern becomes a regular expression that never
goes back: after each `*` the first place where the next part fits is taken for good, which is right because whatever
matches later also matches from there. Across segments `**` makes several positions in the pattern possible at once; all
of them are followed together, as a set, so that no combination is tried twice.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

Segment = Callable[[str], object]
"""Whether a file name matches: anything true, or not."""
ANY_FOLDERS, STAR = "**", "*"


@lru_cache(maxsize=4096)
def segment(pattern: str, *, escapes: bool = False) -> Segment:
    """A matcher of file names. With `escapes`, a backslash takes the next character as it is, as git does."""
    tokens = _tokens(pattern, escapes)
    if not any(len(item) > 1 or item == STAR for item in tokens):
        literal = "".join(tokens)
        return lambda name: name == literal
    chunks: list[str] = [""]
    for item in tokens:
        if item == STAR:
            chunks.append("")
        else:
            chunks[-1] += item[1:] if len(item) > 1 else re.escape(item)
    if len(chunks) == 1:
        return re.compile(f"(?s:{chunks[0]})").fullmatch
    first, *middle, last = chunks
    text = first + "".join(f"(?>.*?{chunk})" for chunk in middle if chunk) + f".*{last}"
    return re.compile(f"(?s:{text})").fullmatch


def _tokens(pattern: str, escapes: bool) -> list[str]:
    """`*` for any characters, one character for itself, and anything longer for a regular expression (after a mark)."""
    tokens: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if tokens[-1:] != ["*"]:
                tokens.append("*")
        elif char == "?":
            tokens.append("=.")
        elif char == "[" and (end := _end_of_set(pattern, at)) > 0:
            inside = pattern[at:end]
            if escapes and inside.startswith("^"):
                inside = f"!{inside[1:]}"
            tokens.append("=" + _set(inside))
            at = end + 1
        else:
            if char == "\\" and escapes and at < len(pattern):
                char, at = pattern[at], at + 1
            tokens.append(char if char != "*" else r"=\*")
    return tokens


def _end_of_set(pattern: str, start: int) -> int:
    """Where the set that begins here ends; -1 if nowhere, and then the bracket stands for itself."""
    begin = start + 1 if pattern[start : start + 1] in ("!", "^") else start
    return pattern.find("]", begin + 1)


def _set(inside: str) -> str:
    found = fnmatch.translate(f"[{inside}]")
    return found.removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")


class PathGlob:
    """A pattern over the segments of a path. `**` stands for any number of folders that `passes` lets through."""

    __slots__ = ("_parts", "_passes")

    def __init__(self, parts: Sequence[Segment | None], passes: Segment | None = None) -> None:
        """`parts` are matchers of segments, with None for `**`."""
        kept: list[Segment | None] = []
        for part in parts:
            if part is not None or kept[-1:] != [None]:  # one ** after another changes nothing
                kept.append(part)
        self._parts = tuple(kept)
        self._passes = passes

    def begin(self) -> frozenset[int]:
        """The positions in the pattern before the first segment."""
        return self._settled({0})

    def step(self, places: frozenset[int], name: str) -> frozenset[int]:
        """The positions after one more segment; none means that nothing below can match."""
        found: set[int] = set()
        for place in places:
            if place == len(self._parts):
                continue
            part = self._parts[place]
            if part is None:
                if self._passes is None or self._passes(name):
                    found.add(place)
            elif part(name):
                found.add(place + 1)
        return self._settled(found) if found else frozenset()

    def complete(self, places: frozenset[int]) -> bool:
        """Whether the whole pattern was matched."""
        return len(self._parts) in places

    def matches(self, path: str) -> bool:
        """Whether a whole path matches."""
        places = self.begin()
        for name in path.split("/"):
            places = self.step(places, name)
            if not places:
                return False
        return self.complete(places)

    def _settled(self, places: set[int]) -> frozenset[int]:
        """With those that are reached because `**` may stand for no folder at all."""
        more = {place + 1 for place in places if place < len(self._parts) and self._parts[place] is None}
        return frozenset(places | more)
