"""Slurm's short form of many names: `n[1-3,7],gpu02` stands for n1, n2, n3, n7 and gpu02. Pure.

What cannot be expanded stands for itself, and of very many names only the first are reported: the list may be that of
anybody's job, and nothing depends on it but a share of energy.
"""

from __future__ import annotations

from isthmus._kit.numbers import whole

MOST = 100_000


def expand(text: str) -> list[str]:
    """The names, at most `MOST`; empty for what stands for no nodes."""
    if not text or text in ("(null)", "None assigned", "None"):
        return []
    found: list[str] = []
    for part in _split(text):
        found += _expand_one(part, MOST - len(found))
        if len(found) >= MOST:
            break
    return found[:MOST]


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [part for part in [*parts, text[begin:]] if part]


def _expand_one(part: str, most: int) -> list[str]:
    names, rest = [""], part
    while (begin := rest.find("[")) >= 0 and (end := rest.find("]", begin)) >= 0:
        numbers: list[str] = []
        for piece in rest[begin + 1 : end].split(","):
            numbers += _numbers(piece, most)
        share = max(1, most // max(1, len(names)))
        names = [f"{name}{rest[:begin]}{number}" for name in names for number in numbers[:share]]
        rest = rest[end + 1 :]
    return [f"{name}{rest}" for name in names]


def _numbers(piece: str, most: int) -> list[str]:
    first, _, last = piece.partition("-")
    begin, end = whole(first), whole(last)
    if begin is None or end is None:
        return [piece]
    return [str(number).zfill(len(first)) for number in range(begin, min(end + 1, begin + most))]
