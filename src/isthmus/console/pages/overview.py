"""The overview: what runs where, what is free, what waits and why, what failed lately."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from isthmus.console.calling import GROUP
from isthmus.console.capacities import room_at
from isthmus.console.index import Wanted
from isthmus.console.rendering import render
from isthmus.console.visits import Visit
from isthmus.resources.states import JobPhase

ACTIVE = (JobPhase.RUNNING, JobPhase.PLACED, JobPhase.FINISHING)
WAITING = (JobPhase.PENDING, JobPhase.QUEUED)
"""For Isthmus itself, or in the queue of a site."""
_SHOWN = 8


async def overview(visit: Visit) -> Response:
    """The first page."""
    live = visit.parts.live
    sites = (await visit.asker.get(f"{GROUP}/sites"))["items"]
    await live.start()
    lists = {
        "running": Wanted(visit.tenants, ACTIVE, elements=True),
        "waiting": Wanted(visit.tenants, WAITING),
        "failed": Wanted(visit.tenants, (JobPhase.FAILED,)),
    }
    found: dict[str, Any] = {name: (await live.jobs.page(wanted, _SHOWN))[0] for name, wanted in lists.items()}
    counts = live.jobs.counts(visit.tenants)
    rooms = room_at(sites, live.jobs.active())
    return render(
        visit,
        "overview.html",
        counts=counts,
        total=sum(counts.values()),
        running_count=sum(counts.get(phase, 0) for phase in ACTIVE),
        waiting_count=sum(counts.get(phase, 0) for phase in WAITING),
        rooms=rooms,
        **found,
    )


PAGES = (("GET", "/", overview),)
