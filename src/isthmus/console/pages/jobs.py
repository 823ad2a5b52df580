"""The list of jobs: filtered and cut into pages here, so that the browser never gets more than one page."""

from __future__ import annotations

import re

from starlette.responses import Response

from isthmus.api.requests import require
from isthmus.console.calling import GROUP, in_tenant
from isthmus.console.index import Place, Wanted
from isthmus.console.rendering import render
from isthmus.console.visits import BASE, Visit, back_to
from isthmus.errors import Conflict, Invalid, NotFound
from isthmus.resources.selectors import EVERYTHING, parse_labels
from isthmus.resources.states import JobPhase

from .overview import ACTIVE

PAGE = 50
FILTERS: dict[str, tuple[JobPhase, ...]] = {
    "active": ACTIVE,
    "waiting": (JobPhase.PENDING,),
    "succeeded": (JobPhase.SUCCEEDED,),
    "failed": (JobPhase.FAILED,),
    "cancelled": (JobPhase.CANCELLED,),
}
_CURSOR = re.compile(r"([0-9TZ:.+-]{10,40})~([0-9A-Za-z-]{1,64})")


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
    state = query.get("state", "")
    elements = bool(query.get("elements"))
    text = query.get("q", "").strip().lower()
    wanted = Wanted(tenants, FILTERS.get(state, ()), text, query.get("site", ""), labels, elements)
    await visit.parts.live.start()
    before = cursor_of(visit)
    rows, further = await visit.parts.live.jobs.page(wanted, PAGE, before)
    counts = visit.parts.live.jobs.counts(tenants)
    names = visit.tenants
    if names is None:
        listed = await visit.asker.get(f"{GROUP}/tenants")
        names = frozenset(item["metadata"]["name"] for item in listed["items"])
    kept = {key: query.get(key, "") for key in ("q", "state", "tenant", "site", "labels", "elements")}
    return render(
        visit,
        "jobs.html",
        http=422 if problem else 200,
        rows=rows,
        older={**kept, "before": "~".join(further)} if further else None,
        newest=kept if before else None,
        kept=kept,
        filtered=any(kept.values()),
        states={name: sum(counts.get(phase, 0) for phase in phases) for name, phases in FILTERS.items()},
        total=sum(counts.values()),
        tenants=sorted(names),
        problem=problem,
    )


def cursor_of(visit: Visit) -> Place | None:
    """Where a page of a list begins, as its address says."""
    found = _CURSOR.fullmatch(visit.query.get("before", ""))
    return (found[1], found[2]) if found else None


async def cancel_many(visit: Visit) -> Response:
    """Cancel the ticked ones; those that ended meanwhile are passed over."""
    fields = await visit.form()
    for line in fields.get("job", "").splitlines()[:PAGE]:
        namespace, _, name = line.partition("/")
        try:
            await visit.asker.patch(in_tenant(namespace, "jobs", name), {"spec": {"intent": "Cancel"}})
        except (NotFound, Conflict):
            continue
    return back_to(f"{BASE}/jobs")


PAGES = (("GET", "/jobs", jobs), ("POST", "/jobs/cancel", cancel_many))
