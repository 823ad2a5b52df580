"""Slurm's short form of many names: `n[1-3,7],gpu02` stands for n1, n2, n3, n7 and gpu02. Pure."""

from __future__ import annotations

MOST = 100_000


def expand(text: str) -> list[str]:
    """Every name; empty for what stands for no nodes."""
    if not text or text in ("(null)", "None assigned", "None"):
        return []
    found: list[str] = []
    for part in _split(text):
        found += _expand_one(part)
        if len(found) > MOST:
            raise ValueError(f"{text[:80]!r} stands for more than {MOST} nodes")
    return found


def _split(text: str) -> list[str]:
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [part for part in [*parts, text[begin:]] if part]


def _expand_one(part: str) -> list[str]:
    begin, end = part.find("["), part.find("]")
    if begin < 0 or end < begin:
        return [part]
    rest = _expand_one(part[end + 1 :]) if part[end + 1 :] else [""]
    return [
        f"{part[:begin]}{number}{tail}"
        for piece in part[begin + 1 : end].split(",")
        for number in _numbers(piece)
        for tail in rest
    ]


def _numbers(piece: str) -> list[str]:
    first, dash, last = piece.partition("-")
    if not dash:
        return [first]
    if not (first.isdigit() and last.isdigit()) or int(last) - int(first) > MOST:
        raise ValueError(f"{piece[:40]!r} is not a range of nodes")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
