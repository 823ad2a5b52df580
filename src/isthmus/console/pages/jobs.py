"""The list of jobs and experiments: filtered, sorted and cut into pages here; the address says how.

What an array or an experiment made is folded under it, and fetched when somebody unfolds it (`?open=<uid>`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from isthmus.api.requests import require
from isthmus.console.calling import GROUP, in_tenant
from isthmus.console.index import JobRow, Place, RowQuery
from isthmus.console.rendering import render
from isthmus.console.visits import BASE, Visit, back_to, local_path
from isthmus.console.work import SORTED, SORTS, STATES, AnyRow, RowPage, counts, in_order, newest
from isthmus.errors import Conflict, Invalid, NotFound
from isthmus.resources.frame.selectors import EVERYTHING, parse_labels

PAGE = 50
UNFOLDED = 100
"""Runs that are shown under one array or experiment."""
_MOST_OPEN = 8
_MOST_PAGES = SORTED // PAGE
_KEPT = ("q", "state", "tenant", "site", "labels", "mine", "elements", "sort", "open")
_FILTERS = ("q", "tenant", "site", "labels", "mine", "elements")
_CURSOR = re.compile(r"([0-9TZ:.+-]{10,40})~([0-9A-Za-z-]{1,64})")


@dataclass(frozen=True, slots=True)
class Unfolded:
    """What is shown under an array or an experiment."""

    rows: list[JobRow]
    more: bool


async def jobs(visit: Visit) -> Response:
    """One page of them."""
    query = visit.query
    tenants, problem = visit.tenants, ""
    if tenant := query.get("tenant", ""):
        require(visit.caller, "list", "jobs", tenant)
        tenants = frozenset({tenant})
    try:
        labels = parse_labels(query.get("labels", ""))
    except Invalid as error:
        labels, problem = EVERYTHING, error.message
    kept = {key: query.get(key, "") for key in _KEPT}
    wanted = RowQuery(
        tenants,
        STATES.get(kept["state"], ()),
        kept["q"].strip().lower(),
        kept["site"],
        labels,
        bool(kept["elements"]),
        visit.caller.user if kept["mine"] else "",
    )
    live = visit.parts.live
    await live.start()
    found = await _page(visit, wanted, kept)
    states = counts(live, tenants)
    names, sites = await _choices(visit)
    filtered = any(kept[key] for key in _FILTERS)
    return render(
        visit,
        "jobs.html",
        http=422 if problem else 200,
        rows=found.rows,
        unfolded=await _unfolded(visit, found.rows, kept["open"]),
        may={row.uid for row in found.rows if visit.may("patch", _plural(row), row.namespace, row.name)},
        cut=SORTED if found.cut else 0,
        **_ways_on(visit, found, kept),
        kept=kept,
        filtered=filtered or bool(kept["state"]),
        counted=not any(kept[key] for key in _FILTERS if key != "tenant"),
        states=states,
        total=sum(states.values()),
        tenants=names,
        sites=sites,
        problem=problem,
    )


async def _page(visit: Visit, wanted: RowQuery, kept: dict[str, str]) -> RowPage:
    sort = kept["sort"] if kept["sort"].removeprefix("-") in SORTS else ""
    if sort in ("", "-submitted"):
        return await newest(visit.parts.live, wanted, PAGE, cursor_of(visit))
    return await in_order(visit.parts.live, wanted, sort, PAGE, _number(visit))


def _ways_on(visit: Visit, found: RowPage, kept: dict[str, str]) -> dict[str, Any]:
    """The addresses of the first page and of the next."""
    following: dict[str, Any] | None = None
    if found.further:
        following = {**kept, "before": "~".join(found.further)}
    elif found.next_number:
        following = {**kept, "page": found.next_number}
    return {"older": following, "newest": kept if cursor_of(visit) or _number(visit) > 1 else None}


async def _choices(visit: Visit) -> tuple[list[str], list[str]]:
    """The tenants and sites by which one may filter."""
    names = visit.tenants
    if names is None:
        listed = await visit.asker.get(f"{GROUP}/tenants")
        names = frozenset(item["metadata"]["name"] for item in listed["items"])
    sites = await visit.asker.get(f"{GROUP}/sites")
    return sorted(names), sorted(item["metadata"]["name"] for item in sites["items"])


async def _unfolded(visit: Visit, rows: list[AnyRow], asked: str) -> dict[str, Unfolded]:
    """The runs of those rows of this page that are unfolded, in the order of their names."""
    wanted = set(asked.split(",")[:_MOST_OPEN])
    found: dict[str, Unfolded] = {}
    for row in rows:
        if row.uid in wanted and row.label:
            labels = parse_labels(f"{row.label}={row.name[:63].rstrip('-.')}")
            runs, further = await visit.parts.live.jobs.page(
                RowQuery({row.namespace}, labels=labels, elements=True), UNFOLDED, since=row.order
            )
            runs.sort(key=lambda run: [(len(part), part) for part in run.name.split("-")])
            found[row.uid] = Unfolded(runs, further is not None)
    return found


def cursor_of(visit: Visit) -> Place | None:
    """Where a page of a list begins, as its address says."""
    found = _CURSOR.fullmatch(visit.query.get("before", ""))
    return (found[1], found[2]) if found else None


def _number(visit: Visit) -> int:
    text = visit.query.get("page", "1")
    return min(int(text), _MOST_PAGES) if re.fullmatch(r"[1-9]\d{0,3}", text) else 1


def _plural(row: AnyRow) -> str:
    return "jobs" if isinstance(row, JobRow) else "experiments"


async def change_many(visit: Visit) -> Response:
    """Cancel or delete the selected ones; what has ended or is gone meanwhile is passed over."""
    fields = await visit.form()
    action = visit.request.path_params["action"]
    if action not in ("cancel", "delete"):
        raise NotFound("selected jobs can be cancelled or deleted")
    for line in fields.get("job", "").splitlines()[:PAGE]:
        plural, namespace, name = [*line.split("/"), "", ""][:3]
        if plural not in ("jobs", "experiments"):
            raise Invalid("the selection names something other than jobs and experiments; reload the page")
        path = in_tenant(namespace, plural, name)
        try:
            if action == "delete":
                await visit.asker.ask("DELETE", path)
            else:
                await visit.asker.patch(path, {"spec": {"intent": "Cancel"}})
        except (NotFound, Conflict):
            continue
    return back_to(local_path(fields.get("back", f"{BASE}/jobs")))


PAGES = (("GET", "/jobs", jobs), ("POST", "/jobs/{action}", change_many))
