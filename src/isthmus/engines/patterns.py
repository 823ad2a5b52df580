"""Patterns of the files that a job leaves, such as `out/*.csv` and `**/*.png`.

As in a shell, a wildcard does not begin a name that begins with a dot; `**` stands for any number of folders. A folder
that matches stands for everything below it. Matching is linear (`_kit/globs.py`), and what was found out about a folder
is remembered for the files in it.
"""

from __future__ import annotations

from isthmus._kit.globs import ANY_FOLDERS, PathGlob, Segment, segment
from isthmus.errors import Invalid

MAX_PARTS = 128
"""Segments of a pattern. Folders are searched to a depth of 100."""
_REMEMBERED = 1024


class OutputPattern:
    """One pattern. Raises Invalid if it leads out of the job's folder."""

    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if not parts or pattern.startswith("/") or ".." in parts:
            raise Invalid(f"{pattern[:200]!r} must be a pattern below the job's own folder, such as out/*.csv.")
        if len(parts) > MAX_PARTS:
            raise Invalid(f"{pattern[:200]!r} has more than {MAX_PARTS} folders; shorten it.")
        found = [None if part == ANY_FOLDERS else _visible(part) for part in parts]
        if found[-1] is None:  # stands for files too, so for at least one name
            found.append(_visible("*"))
        self._glob = PathGlob(found, _not_hidden)
        self._folders: dict[str, frozenset[int]] = {"": self._glob.begin()}

    def matches(self, path: str) -> bool:
        """Whether the file at a path is meant, itself or by a folder above it."""
        folder, _, name = path.rpartition("/")
        places = self._places(folder)
        return self._done(places) or self._done(self._glob.step(places, name))

    def leads_below(self, folder: str) -> bool:
        """Whether something in a folder could be meant."""
        return bool(self._places(folder))

    def _places(self, folder: str) -> frozenset[int]:
        """Where in the pattern a folder leads; if it matches as a whole, that is kept for everything below."""
        if (known := self._folders.get(folder)) is not None:
            return known
        places = self._folders[""]
        for name in folder.split("/"):
            if not places or self._done(places):
                break
            places = self._glob.step(places, name)
        if len(self._folders) >= _REMEMBERED:
            self._folders = {"": self._folders[""]}
        self._folders[folder] = places
        return places

    def _done(self, places: frozenset[int]) -> bool:
        return self._glob.complete(places)


def _not_hidden(name: str) -> bool:
    return not name.startswith(".")


def _visible(part: str) -> Segment:
    """As in a shell: only a pattern that begins with a dot matches a name that does."""
    matches = segment(part)
    if part.startswith("."):
        return matches
    return lambda name: not name.startswith(".") and matches(name)
