"""Where each kind lives on the server, without its model: what a client needs to build a path, and no pydantic.

A test holds this table to `resources.kinds`.
"""

from __future__ import annotations

from typing import NamedTuple

from isthmus.errors import NotFound


class Place(NamedTuple):
    """One kind: its name, its word in paths, whether it belongs to a tenant, and what people call it."""

    kind: str
    plural: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    root: str = "/apis/isthmus.dev/v1"

    @property
    def api_version(self) -> str:
        """What objects of the kind carry in `apiVersion`."""
        return self.root.removeprefix("/apis/").removeprefix("/api/")


PLACES = (
    Place("Job", "jobs", True, ("ijob", "ijobs")),
    Place("Experiment", "experiments", True, ("iexp",)),
    Place("Site", "sites", False, ("isite",)),
    Place("DeviceClass", "deviceclasses", False, ("idev",)),
    Place("Tenant", "tenants", False, ("itenant",)),
    Place("Token", "tokens", True, ("itoken",)),
    Place("Event", "events", True, ("ev",), "/api/v1"),
)
JOBS, EXPERIMENTS = PLACES[0], PLACES[1]


def place_of(word: str) -> Place:
    """The place of what a person calls `Job`, `jobs`, `job`, `ijob` or `jobs.isthmus.dev`."""
    lowered = word.lower().removesuffix(".isthmus.dev")
    for place in PLACES:
        if lowered in (place.kind.lower(), place.plural, *place.short_names):
            return place
    known = ", ".join(place.plural for place in PLACES)
    raise NotFound(f"there is no kind called {word!r}; the kinds are {known}")
