"""Writing: create, update and patch. Read, decide with `admission` (pure), write with the version that was read.

A write that names no version is tried again when somebody else was faster; one that names a version is not. A dry
run goes the whole way but the last step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import orjson
from starlette.exceptions import HTTPException

from isthmus._kit.clock import timestamp, utcnow
from isthmus._kit.ids import new_uid, suffix
from isthmus.api.auditing import NAME
from isthmus.api.documents import check_plain, media_type, read_document, read_value
from isthmus.api.requests import require
from isthmus.errors import AlreadyExists, Conflict, Invalid, NotFound
from isthmus.resources.kinds import KINDS, SECRET, TENANT
from isthmus.store.base import Key, Object, Part, Record

from . import admission, belonging
from .calls import Call
from .options import WriteOptions, write_options
from .patching import apply, json_patch, merge
from .priorities import check_priority
from .reading import send_record
from .secret_fields import keep_sealed, seal, without_sealed
from .sizes import check_sizes

_TRIES = 8
_GENERATED_PREFIX = 247
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


async def create(call: Call) -> None:
    """A new object in a collection."""
    options = write_options(call.query_string)
    sent = await _document(call)
    record = await _create(call, sent, options)
    call.scope[NAME] = record.key.name
    await send_record(call, record, 201)


async def update(call: Call) -> None:
    """Replace an object, or its status."""
    options = write_options(call.query_string)
    sent = await _document(call)
    record = await _change(call, lambda _: sent, options, keep_finalizers=True)
    await send_record(call, record)


async def patch(call: Call) -> None:
    """Change some fields of an object, or of its status."""
    options = write_options(call.query_string)
    media = media_type(call.header(b"content-type").decode("latin-1"))
    if media == APPLY_PATCH:
        await _apply(call, options)
        return
    change = await _patch_of(call, media)
    may_drop = call.caller.is_platform_admin
    record = await _change(call, change, options, keep_finalizers=not may_drop)
    await send_record(call, record)


async def _patch_of(call: Call, media: str) -> Callable[[Object], Any]:
    body = await call.body()
    if media == MERGE_PATCH:
        wanted = await read_document(body, media, call.context.limits.nesting)
        return lambda old: merge(old, wanted)
    if media == JSON_PATCH:
        operations = await read_value(body, media, call.context.limits.nesting)
        return lambda old: json_patch(old, operations)
    raise HTTPException(
        415,
        f"a patch of type {media!r} is not offered; use {MERGE_PATCH}, {JSON_PATCH} or {APPLY_PATCH}",
        {"Accept-Patch": f"{MERGE_PATCH}, {JSON_PATCH}, {APPLY_PATCH}"},
    )


async def _apply(call: Call, options: WriteOptions) -> None:
    """Server-side apply: create, or merge and take away what the same manager no longer wants."""
    if not options.manager:
        raise HTTPException(400, "an apply patch needs ?fieldManager=, the name of who applies")
    wanted = await _document(call)
    try:
        record = await _change(call, lambda old: apply(old, wanted, options.manager), options, keep_finalizers=True)
        await send_record(call, record)
    except NotFound:
        if call.target.subresource:
            raise
        _require_create(call)
        first = apply({}, wanted, options.manager)
        await send_record(call, await _create(call, first, options), 201)


def _require_create(call: Call) -> None:
    """Applying may create, which needs the right to create."""
    require(call.caller, "create", call.target.view.kind.plural, call.target.namespace, call.target.name)


async def _create(call: Call, sent: Object, options: WriteOptions) -> Record:
    kind, namespace = call.target.view.stored, call.target.namespace
    metadata = sent.get("metadata")
    prefix = metadata.get("generateName") if isinstance(metadata, dict) and not metadata.get("name") else None
    for last in range(_TRIES - 1, -1, -1):
        name = call.target.name
        if isinstance(prefix, str) and prefix and not name:
            name = prefix[:_GENERATED_PREFIX] + suffix()
        new = await call.apart(admission.prepare_new, kind, sent, namespace, name)
        admission.note_person(kind, new, **_person(call))
        await _admit(call, None, new)
        if kind is SECRET:
            seal(call.context.sealer, None, new)
        try:
            if options.dry_run:
                return await _would_create(call, new)
            record = await call.context.store.create(kind, new)
        except AlreadyExists:
            if prefix and last:
                continue
            raise
        await call.context.authenticator.caught_up(kind.name, record.version)
        return record
    raise AssertionError("unreachable")


async def _change(call: Call, make: Callable[[Object], Any], options: WriteOptions, *, keep_finalizers: bool) -> Record:
    kind, store = call.target.view.stored, call.context.store
    to_status = call.target.subresource == "status"
    for last in range(_TRIES - 1, -1, -1):
        record = await store.get(call.target.key)
        old = record.obj
        sent = await call.apart(make, without_sealed(old) if kind is SECRET else old)
        if not isinstance(sent, dict):
            raise Invalid("the patch makes of the object something that is none")
        if kind is SECRET:
            sent = keep_sealed(old, sent)
        # What was sent is bounded, and so is what a patch copies; what was there is there.
        check_plain(sent, call.context.limits.nesting, sys.maxsize)
        named = isinstance(sent.get("metadata"), dict) and sent["metadata"].get("resourceVersion")
        if named and named != old["metadata"].get("resourceVersion"):
            raise changed_meanwhile(call)
        if to_status:
            new = await call.apart(admission.prepare_status, kind, old, sent)
        else:
            new = await call.apart(admission.prepare_change, kind, old, sent, keep_finalizers=keep_finalizers)
            await _admit(call, old, new)
            if kind is SECRET:
                seal(call.context.sealer, old, new)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if options.dry_run:
            return _would_be(record, new if to_status else {**new, **_status(old)})
        try:
            updated = await store.update(kind, new, Part.STATUS if to_status else Part.SPEC)
        except Conflict:
            if last:
                continue
            raise
        await call.context.authenticator.caught_up(kind.name, updated.version)
        return updated
    raise AssertionError("unreachable")


async def _admit(call: Call, old: Object | None, new: Object) -> None:
    """The rules that need the caller or a look at other objects."""
    kind, namespace, store = call.target.view.stored, call.target.namespace, call.context.store
    check_sizes(old, new, call.context.limits)
    admission.check_rights(call.caller, kind, old, new)
    belonging.check_finalizers(call.caller, old, new)
    tenant = call.context.authenticator.tenant(namespace)
    check_priority(call.caller, namespace, tenant.priority if tenant else None, old, new)
    if old is None and admission.needs_tenant(kind, namespace):
        await _check_tenant(call)
    for owner in belonging.new_owners(old, new):
        if not belonging.may_own(call.caller, owner, namespace):
            raise belonging.foreign_owner(owner)
        owned = KINDS[owner["kind"]]
        try:
            found = await store.get(Key(owned.name, namespace if owned.namespaced else "", owner["name"]))
        except NotFound:
            raise belonging.foreign_owner(owner) from None
        if found.uid != owner["uid"]:
            raise belonging.foreign_owner(owner)


def _person(call: Call) -> dict[str, str | None]:
    """The user who calls, who is a member of the tenant only if the platform vouches for it.

    Where an object and its status come one after the other, the object might be at work before: then nobody is named.
    """
    if not call.context.store.whole_at_once:
        return {"member": None, "user": None}
    caller, known = call.caller, call.context.authenticator.tenant(call.target.namespace)
    vouched = caller.personal and known is not None and caller.user in known.members
    return {"member": caller.user if vouched else None, "user": caller.user}


async def _check_tenant(call: Call) -> None:
    """The namespace is a tenant that may work. The index in memory answers; a no is confirmed by the store."""
    kind, namespace = call.target.view.stored, call.target.namespace
    known = call.context.authenticator.tenant(namespace)
    if known is not None and not known.suspended and not known.terminating:
        return
    try:
        record = await call.context.store.get(Key(TENANT.name, "", namespace))
    except NotFound:
        raise NotFound(
            f"there is no tenant {namespace!r}; create the Tenant first, its name is the namespace"
        ) from None
    suspended = bool((record.obj.get("spec") or {}).get("suspended"))
    admission.check_tenant(
        namespace, kind, suspended=suspended, terminating="deletionTimestamp" in record.obj["metadata"]
    )


def changed_meanwhile(call: Call) -> Conflict:
    """The refusal of a version that is not the present one."""
    target = call.target
    return Conflict(
        f'Operation cannot be fulfilled on {target.view.kind.resource} "{target.name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def _would_create(call: Call, new: Object) -> Record:
    key = call.target.key._replace(name=new["metadata"]["name"])
    try:
        await call.context.store.get(key)
    except NotFound:
        version = await call.context.store.version()
        metadata = {**new["metadata"], "uid": new_uid(), "creationTimestamp": timestamp(utcnow()), "generation": 1}
        made = {**new, "metadata": metadata}
        return Record(key, metadata["uid"], version, orjson.dumps(made))
    raise AlreadyExists(f'{call.target.view.kind.resource} "{key.name}" already exists')


def _would_be(record: Record, new: Object) -> Record:
    return Record(record.key, record.uid, record.version, orjson.dumps(new))


def _status(old: Object) -> Object:
    return {"status": old["status"]} if "status" in old else {}


async def _document(call: Call) -> Object:
    body = await call.body()
    return await read_document(body, call.header(b"content-type").decode("latin-1"), call.context.limits.nesting)
