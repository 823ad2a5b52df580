"""Where symbolic links of a folder lead, worked out without the folder."""

from __future__ import annotations

from collections.abc import Mapping

_MOST_HOPS = 40
_LINK_STEPS = 2_000_000


def escaping(links: Mapping[str, str]) -> set[str]:
    """Of the links of one folder, given by path and target, those that lead out of it, alone or through each other.

    `a` to `.` and `b` to `a/..` both stay inside as they are written, and `b` leads out. The work is bounded: beyond
    so many steps for all links together, the rest is taken to lead out.
    """
    left = _LINK_STEPS
    found = set()
    for path in links:
        leads_out, steps = _follow(path, links, left)
        left -= steps
        if leads_out:
            found.add(path)
    return found


def _follow(path: str, links: Mapping[str, str], most: int) -> tuple[bool, int]:
    """Whether a path leads out of the folder, as a kernel follows it; and how many steps it took to know."""
    todo, here = path.split("/")[::-1], list[str]()
    steps = hops = 0
    while todo:
        steps += 1 + len(here) // 16
        if steps > most:
            return True, steps
        part = todo.pop()
        if part == "..":
            if not here:
                return True, steps
            here.pop()
        elif part not in ("", "."):
            here.append(part)
            target = links.get("/".join(here))
            if target is not None:
                hops += 1
                if hops > _MOST_HOPS:  # no kernel follows a circle further, but programs that go by the text do
                    return ".." in todo, steps
                if target.startswith("/"):
                    return True, steps
                here.pop()
                todo += target.split("/")[::-1]
    return False, steps
