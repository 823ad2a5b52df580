"""Lists of a cluster's objects.

Labels and names are selected by the server. Fields of custom resources are selected here: servers before 1.31 know no
such thing. A page of them may therefore be shorter than its limit although more follow, which Kubernetes'
conventions permit. Continue tokens are the server's own: a continued list shows the state of its first page.
"""

from __future__ import annotations

from typing import Any

from isthmus.errors import Cause, Expired, Invalid
from isthmus.kubernetes.client import KubernetesClient
from isthmus.store.base import Page, Query, Record

from .shaping import incoming, path_of, remaining_fields, selection

_TRIES = 5


async def list_all(api: KubernetesClient, query: Query, chunk: int) -> Page:
    """Everything that matches, at one version, in the order of keys."""
    for _ in range(_TRIES):
        try:
            records, version = await _walk(api, query, chunk)
        except Expired:  # it took so long that the server no longer has the state of the first page
            continue
        return Page(sorted(records, key=lambda record: record.key), version)
    raise Expired(f"the list of {query.kind.plural} is too long to be read in one go; list it in pages")


async def list_page(api: KubernetesClient, query: Query, limit: int, token: str | None) -> Page:
    """Some of what matches, and how to go on."""
    while True:
        page = await _fetch(api, query, limit, token)
        if page.records or page.continue_ is None:
            return page
        token = page.continue_  # nothing of this page matched: look further rather than answer with nothing


async def _walk(api: KubernetesClient, query: Query, chunk: int) -> tuple[list[Record], int]:
    page = await _fetch(api, query, chunk, None)
    records, version = page.records, page.version
    while page.continue_ is not None:
        page = await _fetch(api, query, chunk, page.continue_)
        records += page.records
    return records, version


async def _fetch(api: KubernetesClient, query: Query, limit: int, token: str | None) -> Page:
    kind = query.kind
    params: dict[str, Any] = {**selection(query), "limit": limit}
    if token is not None:
        params["continue"] = token
    try:
        answer = await api.get(path_of(kind, query.namespace), kind.plural, params)
    except Invalid as error:
        if token is None:
            raise
        message = f"the continue token cannot be read ({error.message}); list again from the beginning"
        raise Invalid(message, causes=(Cause("continue", message),)) from None
    records = [incoming(kind, item) for item in answer["items"]]
    if fields := remaining_fields(query):
        records = [record for record in records if fields.matches(kind.selectable(record.obj))]
    meta = answer["metadata"]
    # How many more the server has says nothing about how many of them match.
    remaining = meta.get("remainingItemCount") if not (fields or query.labels) else None
    return Page(records, int(meta["resourceVersion"]), meta.get("continue") or None, remaining)
