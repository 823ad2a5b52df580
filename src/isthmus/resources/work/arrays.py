"""The indices of an array of jobs, as people write them: `0-99`, `1,3,5`, `0-100:10`."""

from __future__ import annotations

import re

_PART = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?")
MAX_ARRAY = 100_000


def expand_indices(text: str) -> list[int]:
    """The sorted indices of `0-99`, `1,3,5`, `0-100:10`."""
    found: set[int] = set()
    total = 0
    for part in text.replace(" ", "").split(","):
        match = _PART.fullmatch(part)
        if not match or len(part) > 32:
            raise ValueError(f"{part[:40]!r} is not an index or a range; write 0-99, 1,3,5 or 0-100:10")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise ValueError(f"{part[:40]!r} is an empty range; write the smaller number first")
        total += (last - first) // step + 1  # not len(found): what is named again is work again
        if total > MAX_ARRAY:
            raise ValueError(f"has more than {MAX_ARRAY} elements; split it into several jobs")
        found.update(range(first, last + 1, step))
    return sorted(found)
