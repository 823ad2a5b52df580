"""Reading: get and list. The bytes of the store go out as they are; only other forms are decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson

from isthmus._kit.clock import utcnow
from isthmus.api.responses import send_json
from isthmus.errors import Expired
from isthmus.resources.kinds import Kind
from isthmus.store.base import Page, Record

from .calls import Call
from .options import ListOptions, list_options
from .tables import META_V1, Form, partial_metadata, table

_MANY = 500
"""More objects than these are decoded in a thread."""


async def get(call: Call) -> None:
    """One object."""
    record = await call.context.store.get(call.target.key)
    await send_record(call, record)


async def send_record(call: Call, record: Record, code: int = 200) -> None:
    """One object, in the form that was asked for."""
    view = call.target.view
    if (convert := call.convert) is not None:
        record = convert(record)
    if call.form is Form.OBJECT:
        await send_json(call.send, record.data, code)
    else:
        include = list_options(view.kind.name, call.query_string).include
        await send_json(call.send, orjson.dumps(_shown(view.kind, record, call.form, include)), code)


async def list_(call: Call, options: ListOptions) -> None:
    """Many objects."""
    view = call.target.view
    page = await call.context.store.list(
        call.query(options),
        limit=options.limit,
        continue_=options.continue_,
        most_bytes=call.context.limits.list_bytes,
    )
    if options.exact and options.version is not None and options.version != page.version:
        raise Expired(
            f"version {options.version} is no longer the present one; list without resourceVersionMatch=Exact"
        )
    records: Iterable[Record] = page.records
    if (convert := call.convert) is not None:
        records = [convert(record) for record in page.records]
    if call.form is Form.OBJECT:
        await send_json(call.send, encode_list(view.kind, records, page))
        return
    if len(page.records) > _MANY:
        data = await asyncio.to_thread(_encode_form, view.kind, records, page, call.form, options.include)
    else:
        data = _encode_form(view.kind, records, page, call.form, options.include)
    await send_json(call.send, data)


def encode_list(kind: Kind, records: Iterable[Record], page: Page) -> bytes:
    """A list, joined from the bytes of its objects."""
    head = orjson.dumps({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": list_metadata(page)})
    return b"".join((head[:-1], b',"items":[', b",".join([record.data for record in records]), b"]}"))


def _encode_form(kind: Kind, records: Iterable[Record], page: Page, form: Form, include: str) -> bytes:
    """A list in another form, for which every object must be decoded."""
    metadata = list_metadata(page)
    if form is Form.TABLE:
        return orjson.dumps(table(kind, (record.obj for record in records), metadata, utcnow(), include))
    items = [partial_metadata(record.obj) for record in records]
    return orjson.dumps(
        {"kind": "PartialObjectMetadataList", "apiVersion": META_V1, "metadata": metadata, "items": items}
    )


def list_metadata(page: Page) -> dict[str, Any]:
    """At which version, and how to go on."""
    metadata: dict[str, Any] = {"resourceVersion": str(page.version)}
    if page.continue_:
        metadata["continue"] = page.continue_
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    return metadata


def _shown(kind: Kind, record: Record, form: Form, include: str) -> dict[str, Any]:
    if form is Form.TABLE:
        return table(kind, [record.obj], {"resourceVersion": str(record.version)}, utcnow(), include)
    return partial_metadata(record.obj)
