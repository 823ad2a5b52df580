"""Names in a job that do not exist are reported before it is submitted: otherwise it would wait for them for ever.

Only names that are said are looked up, so an ordinary job costs no request more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from isthmus.errors import Forbidden, IsthmusError, NotFound

from . import flows, requests
from .flows import Flow
from .places import Place, place_of

MANY = 500
"""Names looked at for what was probably meant: one page, which costs as much as one look at `isthmus jobs`."""


def names_in(work: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Kinds and names that a job or an experiment refers to."""
    spec = work.get("spec") or {}
    matrix = spec.get("matrix") or {}
    spec = spec.get("template") or spec
    resources = spec.get("resources") or {}
    for site in (*((spec.get("placement") or {}).get("sites") or ()), *(matrix.get("sites") or ())):
        yield "sites", str(site)
    for device in (*(resources.get("devices") or ()), *(resources.get("anyOf") or ())):
        if isinstance(device, Mapping) and device.get("class"):
            yield "deviceclasses", str(device["class"])
    for device in matrix.get("devices") or ():
        yield "deviceclasses", str(device)
    for dependency in spec.get("dependencies") or ():
        if isinstance(dependency, Mapping) and dependency.get("job"):
            yield "jobs", str(dependency["job"])


def check_names(tenant: str, work: Mapping[str, Any], otherwise: str) -> Flow[None]:
    """Raise NotFound for a name that does not exist, with the one that was probably meant, and what else to do."""
    for kind, name in names_in(work):
        place = place_of(kind)
        home = tenant if place.namespaced else None
        try:
            yield from flows.ask(requests.get(place, home, name))
        except Forbidden:  # not ours to know: the server decides
            continue
        except NotFound:
            message = missing(place, home, name, (yield from _names(place, home)))
            raise NotFound(f"{message}; {otherwise}", kind=place.kind, name=name) from None


def _names(place: Place, home: str | None) -> Flow[list[str]]:
    """What there is, as far as it can be found out quickly."""
    try:
        page = yield from flows.ask(requests.list_page(place, home, limit=MANY)._replace(patience=2.0))
    except IsthmusError:
        return []
    return [str(item["metadata"]["name"]) for item in page.get("items") or ()]


def missing(place: Place, home: str | None, name: str, names: Sequence[str]) -> str:
    """The sentence; it proposes a name only if there is no doubt which."""
    listing = f"isthmus {place.listing}" + (f" -n {home}" if home else "")
    meant = f"did you mean {near}? " if (near := nearest(name, names)) else ""
    return f"there is no {place.words} {name}{f' in tenant {home}' if home else ''}; {meant}`{listing}` lists them"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The only name that begins like this one, or is nearly the same."""
    from difflib import get_close_matches

    known = list(names)
    near = {other for other in known if other.startswith(name)} | set(get_close_matches(name, known, 2, 0.75))
    return near.pop() if len(near) == 1 else None
