"""Where each kind lives on the server, without its model: what a client needs to build a path, and no pydantic.

The register of kinds costs a third of a second to import, so the command line reads a copy, `known_kinds`, which
`make docs` writes from the declarations. A process that has the register loaded anyway reads the register.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from isthmus.errors import NotFound

if TYPE_CHECKING:
    from isthmus.resources.kinds import Kind


class KindColumn(NamedTuple):
    """One column of a kind's table."""

    title: str
    path: str
    type: str = "string"
    wide: bool = False


class Place(NamedTuple):
    """One kind: its name, its word in paths, whether it belongs to a tenant, and how people ask for it."""

    kind: str
    plural: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    root: str = "/apis/isthmus.dev/v1"
    listing: str = ""
    """The words after `isthmus` that list it."""
    description: str = ""
    columns: tuple[KindColumn, ...] = ()

    @property
    def api_version(self) -> str:
        """What objects of the kind carry in `apiVersion`."""
        return self.root.removeprefix("/apis/").removeprefix("/api/")

    @property
    def words(self) -> str:
        """What people call one of them: `job`, `device class`."""
        return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in self.kind).strip()


def place_for(kind: Kind) -> Place:
    """The place of a kind, from its declaration."""
    return Place(
        kind.name,
        kind.plural,
        kind.namespaced,
        kind.short_names,
        f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}",
        kind.listing or kind.plural,
        kind.description,
        tuple(
            KindColumn(column.name.upper(), column.path, column.type, column.priority > 0) for column in kind.columns
        ),
    )


def places() -> tuple[Place, ...]:
    """Every kind that the server offers."""
    if (loaded := sys.modules.get("isthmus.resources.kinds")) is not None and hasattr(loaded, "KINDS"):
        return tuple(place_for(kind) for kind in loaded.KINDS.values() if kind.served)
    from .known_kinds import PLACES

    return PLACES


JOBS = Place("Job", "jobs", True)
EXPERIMENTS = Place("Experiment", "experiments", True)
"""What `isthmus run` and `compare` need of their kinds, with nothing looked up."""


def place_of(word: str) -> Place:
    """The place of what a person calls `Job`, `jobs`, `job`, `ijob` or `jobs.isthmus.dev`."""
    lowered = word.lower().removesuffix(".isthmus.dev")
    for place in places():
        if lowered in (place.kind.lower(), place.plural, *place.short_names):
            return place
    from difflib import get_close_matches

    known = [place.plural for place in places()]
    near = get_close_matches(lowered, known, 1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise NotFound(f"there is no kind called {word!r}; {meant}the kinds are {', '.join(known)}")
