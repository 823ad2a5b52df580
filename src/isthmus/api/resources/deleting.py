"""Deleting: one object, or all that match. What has finalizers left is only marked, and shown as such."""

from __future__ import annotations

import asyncio

import orjson

from isthmus.api.documents import read_document
from isthmus.api.requests import forbidden
from isthmus.api.responses import send_json, status_object
from isthmus.errors import Conflict, NotFound
from isthmus.store.base import Page, Record

from .calls import Call
from .options import DeleteOptions, delete_options, list_options
from .reading import encode_list, send_record
from .writing import changed_meanwhile

_AT_ONCE = 200


async def delete(call: Call) -> None:
    """One object."""
    options = await _options(call)
    target, store = call.target, call.context.store
    if options.dry_run:
        record = await store.get(target.key)
        if (options.uid and options.uid != record.uid) or (options.version and options.version != record.version):
            raise changed_meanwhile(call)
        await send_record(call, record)
        return
    record = await store.delete(target.key, uid=options.uid, version=options.version, propagation=options.propagation)
    await call.context.authenticator.caught_up(target.view.stored.name, record.version)
    if record.obj["metadata"].get("finalizers"):
        await send_record(call, record)
        return
    details = {**target.what(), "uid": record.uid}
    await send_json(call.send, orjson.dumps(status_object(200, "", "", details, success=True)))


async def delete_collection(call: Call) -> None:
    """Everything that matches the selectors; the objects as they were deleted."""
    options = await _options(call)
    chosen = list_options(call.target.view.kind.name, call.query_string)
    store, view = call.context.store, call.target.view
    if not call.target.namespace and view.kind.namespaced:
        raise forbidden(call.caller, "deletecollection", view.kind.plural, "")
    most = call.context.limits.list_bytes
    page = await store.list(call.query(chosen), limit=chosen.limit, continue_=chosen.continue_, most_bytes=most)
    gone = page.records
    if not options.dry_run:
        gone = []
        # Side by side, so that they share the store's commits.
        for start in range(0, len(page.records), _AT_ONCE):
            some = page.records[start : start + _AT_ONCE]
            gone += [found for found in await asyncio.gather(*(_delete(call, r, options) for r in some)) if found]
        for record in gone[-1:]:
            await call.context.authenticator.caught_up(view.stored.name, record.version)
    await send_json(call.send, encode_list(view.kind, gone, Page(gone, page.version, page.continue_)))


async def _delete(call: Call, record: Record, options: DeleteOptions) -> Record | None:
    try:
        return await call.context.store.delete(record.key, uid=record.uid, propagation=options.propagation)
    except (NotFound, Conflict):
        return None  # somebody else was faster: the result is the same


async def _options(call: Call) -> DeleteOptions:
    body = await call.body()
    sent = await read_document(body, call.header(b"content-type").decode("latin-1"), 16) if body.strip() else {}
    return delete_options(call.query_string, sent)
