"""Any kind that has no pages of its own: a list with the columns that it declares, and one object as it is.

They stand behind all other pages (`console/app.py`), so that a page of a kind's own goes first.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from isthmus._kit.clock import utcnow
from isthmus.api.resources.tables import table
from isthmus.console.rendering import as_yaml, render
from isthmus.console.visits import Visit
from isthmus.resources.kinds import KINDS, Kind, derived

MOST = 500
"""Objects of one tenant that a page lists."""


@derived
def _by_plural() -> dict[str, Kind]:
    return {kind.plural: kind for kind in KINDS.values() if kind.served}


def is_listed(plural: str) -> bool:
    """Whether a page lists this kind."""
    return plural in _by_plural()


async def listing(visit: Visit) -> Response:
    """All of a kind that the caller may see."""
    kind = _asked(visit)
    found = await asyncio.gather(*(visit.asker.get(path, f"limit={MOST}") for path in _paths(visit, kind)))
    items = [item for page in found for item in page["items"]]
    shown = table(kind, items, {}, utcnow(), "None")
    rows = [(item, row["cells"][1:]) for item, row in zip(items, shown["rows"], strict=True)]
    more = any((page.get("metadata") or {}).get("continue") for page in found)
    columns = [column for column in kind.columns if not column.priority]
    return render(visit, "kind.html", kind=kind, columns=columns, rows=rows, more=more, title=_title(kind))


async def one(visit: Visit) -> Response:
    """One object: what its columns say, and its manifest."""
    kind, where = _asked(visit), visit.request.path_params
    namespace, name = where.get("namespace", ""), where["name"]
    if kind.namespaced != bool(namespace):
        raise no_such_page()
    found = await visit.asker.get("/".join((_root(kind, namespace), name)))
    row = table(kind, [found], {}, utcnow(), "None")["rows"][0]["cells"][1:]
    facts = [(column, cell) for column, cell in zip(kind.columns, row, strict=True) if cell not in (None, "")]
    await visit.parts.live.start()
    topic = "/".join(part for part in (kind.plural, namespace, name) if part)
    values: dict[str, Any] = {"facts": facts, "manifest": as_yaml(found), "title": _title(kind), "topic": topic}
    return render(visit, "object.html", 200, kind=kind, object=found, **values)


def _asked(visit: Visit) -> Kind:
    kind = _by_plural().get(visit.request.path_params["plural"])
    _ = visit.caller  # nobody learns which kinds there are before signing in
    if kind is None:
        raise no_such_page()
    return kind


def no_such_page() -> HTTPException:
    """The refusal of an address that no page has."""
    return HTTPException(404, "no page has this address; the navigation above leads on")


def _paths(visit: Visit, kind: Kind) -> list[str]:
    """Where to ask: everywhere at once for who may, else in each of the caller's tenants."""
    if not kind.namespaced or visit.may("list", kind.plural):
        return [_root(kind)]
    mine = sorted(tenant for tenant in visit.caller.grants if visit.may("list", kind.plural, tenant))
    return [_root(kind, tenant) for tenant in mine]


def _root(kind: Kind, namespace: str = "") -> str:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{base}/namespaces/{namespace}/{kind.plural}" if namespace else f"{base}/{kind.plural}"


def _title(kind: Kind) -> str:
    """`Device classes`."""
    if kind.navigation is not None:
        return kind.navigation.title
    words = re.sub(r"(?<!^)([A-Z])", r" \1", kind.name).capitalize()
    return words + kind.plural.removeprefix(kind.name.lower())


PAGES: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/{plural}", listing),
    ("GET", "/{plural}/{name}", one),
    ("GET", "/{plural}/{namespace}/{name}", one),
)
