"""Notes of where audit logs end, kept in the store: a log that was cut short or thrown away does not reach them.

A note is a Lease (docs/design/0007) with the number and the hash of the last entry.
"""

from __future__ import annotations

from isthmus.errors import NotFound
from isthmus.resources.frame.meta import ObjectMeta
from isthmus.resources.kinds import LEASE
from isthmus.resources.leases import Lease
from isthmus.resources.tenants import SYSTEM_NAMESPACE
from isthmus.store.base import Key, Query, Record, Store
from isthmus.store.moving import AUDIT_LOGS

from .chaining import Head

_N, _HASH = "isthmus.dev/audit-entries", "isthmus.dev/audit-hash"


async def note(store: Store, log: str, head: Head) -> None:
    """Keep that a log has come so far."""
    key = Key(LEASE.name, SYSTEM_NAMESPACE, AUDIT_LOGS + log)
    facts = {_N: str(head.n), _HASH: head.hash}
    try:
        record = await store.get(key)
    except NotFound:
        lease = Lease(metadata=ObjectMeta(name=key.name, namespace=key.namespace, annotations=facts))
        await store.create(LEASE, lease.to_json())
        return
    known = _head(record)
    if known is None or known.n < head.n:
        metadata = record.obj["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **facts}
        await store.update(LEASE, {**record.obj, "metadata": {**metadata, "annotations": annotations}})


async def notes(store: Store) -> dict[str, Head]:
    """How far each log had come, by its name."""
    page = await store.list(Query(LEASE, SYSTEM_NAMESPACE))
    found = {r.key.name.removeprefix(AUDIT_LOGS): _head(r) for r in page.records if r.key.name.startswith(AUDIT_LOGS)}
    return {name: head for name, head in found.items() if head is not None}


def _head(record: Record) -> Head | None:
    facts = record.obj["metadata"].get("annotations") or {}
    try:
        return Head(int(facts[_N]), str(facts[_HASH]))
    except (KeyError, ValueError):
        return None
