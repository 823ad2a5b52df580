"""The overview: what runs, what waits and why, what failed lately, and how full the sites are."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from isthmus.console.calling import GROUP
from isthmus.console.capacities import by_urgency, room_at
from isthmus.console.index import RowQuery
from isthmus.console.rendering import render
from isthmus.console.visits import Visit
from isthmus.console.work import STATES, counts, newest

_SHOWN = 8


async def overview(visit: Visit) -> Response:
    """The first page."""
    live = visit.parts.live
    sites = (await visit.asker.get(f"{GROUP}/sites"))["items"]
    await live.start()
    lists: dict[str, Any] = {
        state: (await newest(live, RowQuery(visit.tenants, STATES[state]), _SHOWN)).rows
        for state in ("active", "waiting", "failed")
    }
    states = counts(live, visit.tenants)
    rooms = by_urgency(room_at(sites, live.jobs.active()))
    return render(visit, "overview.html", states=states, total=sum(states.values()), rooms=rooms, **lists)


PAGES = (("GET", "/", overview),)
