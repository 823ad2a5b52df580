"""The chain: each line of a log holds a hash over itself and over the hash before it. Pure.

    <64 hexadecimal digits> <JSON>

An entry has a number `n`, one more than the one before. Changing, adding, removing or moving a line breaks the chain
from there on. Lines are kept in files, and the first entry of each says in `prev` where it goes on, so that what is
left can be checked when the oldest files were removed, which an entry says too (`upTo`). That the last lines are gone
shows only beside a note of the last number and hash made elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

BEGINNING = "0" * 64
_HEX = frozenset(b"0123456789abcdef")
_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a chain."""

    n: int = 0
    hash: str = BEGINNING


def seal(head: Head, fields: Mapping[str, Any]) -> tuple[bytes, Head]:
    """The line that follows a head, and the head after it."""
    body = orjson.dumps({"n": head.n + 1, **fields})
    digest = digest_of(head.hash, body)
    return b"%s %s\n" % (digest.encode(), body), Head(head.n + 1, digest)


def digest_of(before: str, body: bytes) -> str:
    """The hash of a line."""
    return hashlib.sha256(before.encode() + b" " + body).hexdigest()


def read_line(line: bytes) -> tuple[str, bytes, dict[str, Any]] | None:
    """Hash, text and content of a line without its end; None if it is not of the form."""
    if len(line) < 67 or line[64:65] != b" " or not _HEX.issuperset(line[:64]):
        return None
    try:
        found = orjson.loads(line[65:])
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("n"), int):
        return None
    return line[:64].decode(), line[65:], found


@dataclass
class Verifier:
    """Goes along one log, line by line."""

    known: Head | None = None
    """Its end as somebody noted it earlier."""
    head: Head = field(default_factory=Head)
    problems: list[str] = field(default_factory=list)
    entries: int = 0
    _first: int = 0
    _removed: int = 0
    _met: bool = False

    def line(self, line: bytes) -> None:
        """The next line, without its end."""
        found = read_line(line)
        if found is None:
            self._say(f"after entry {self.head.n} there is a line that is not an entry")
            return
        digest, body, content = found
        n, before = content["n"], self.head.hash
        if not self.entries:
            self._first = n
            before = str(content.get("prev", BEGINNING)) if n > 1 else BEGINNING
        elif n != self.head.n + 1:
            self._say(f"entry {self.head.n} is followed by {n}: entries are missing or in another order")
            before = str(content.get("prev", before))
        if digest_of(before, body) != digest:
            self._say(f"entry {n} was changed, or one before it was changed or removed")
        if isinstance(up_to := content.get("upTo"), int):
            self._removed = max(self._removed, up_to)
        self.head = Head(n, digest)
        self.entries += 1
        if self.known is not None and n == self.known.n:
            self._met = True
            if digest != self.known.hash:
                self._say(f"entry {n} is not the one that was noted: the log was written anew")

    def torn(self, size: int) -> None:
        """The log ends in a part of a line."""
        self._say(f"after entry {self.head.n} there are {size} bytes of an entry that was not written to its end")

    def end(self) -> None:
        """There are no more lines."""
        if self.entries and self._first > 1 and self._removed < self._first - 1:
            self._say(f"the log begins with entry {self._first}, and no entry says that the earlier ones were removed")
        if self.known is not None and not self._met and self.known.n > self._removed:
            self._say(f"the log ends with entry {self.head.n}, but {self.known.n} was noted: the last were removed")

    def _say(self, problem: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
