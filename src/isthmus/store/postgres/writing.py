"""Writing to PostgreSQL: load what a batch needs, write what was decided, each in few statements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import orjson

from isthmus.store import ownership
from isthmus.store.base import Key, Record
from isthmus.store.changes import Delete, Operation, Transaction
from isthmus.store.entries import encode_state

from .connecting import Connection

_LOAD = (
    "SELECT kind, namespace, name, uid, version, data FROM objects "
    "JOIN unnest($1::text[], $2::text[], $3::text[]) AS wanted(kind, namespace, name) USING (kind, namespace, name)"
)
_LOAD_OWNED = (
    'WITH RECURSIVE down(uid) AS (SELECT $1::text COLLATE "C" UNION SELECT o.uid FROM down '
    "JOIN owned w ON w.owner = down.uid JOIN objects o USING (kind, namespace, name)) "
    "SELECT w.owner, kind, namespace, name, o.uid, o.version, o.data FROM down "
    "JOIN owned w ON w.owner = down.uid JOIN objects o USING (kind, namespace, name) ORDER BY kind, namespace, name"
)
_PUT = (
    "INSERT INTO objects (kind, namespace, name, uid, version, labels, fields, data) "
    "SELECT n.kind, n.namespace, n.name, n.uid, n.version, n.labels::jsonb, n.fields::jsonb, n.data "
    "FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::bytea[]) "
    "AS n(kind, namespace, name, uid, version, labels, fields, data) "
    "ON CONFLICT (kind, namespace, name) DO UPDATE SET uid = excluded.uid, version = excluded.version, "
    "labels = excluded.labels, fields = excluded.fields, data = excluded.data"
)
_DROP = (
    "DELETE FROM objects USING unnest($1::text[], $2::text[], $3::text[]) AS gone(kind, namespace, name) "
    "WHERE objects.kind = gone.kind AND objects.namespace = gone.namespace AND objects.name = gone.name"
)
_LINK = (
    "INSERT INTO owned (owner, kind, namespace, name) "
    "SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) ON CONFLICT DO NOTHING"
)
_UNLINK = (
    "DELETE FROM owned "
    "USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS gone(owner, kind, namespace, name) "
    "WHERE owned.owner = gone.owner AND owned.kind = gone.kind AND owned.namespace = gone.namespace "
    "AND owned.name = gone.name"
)
_LOG = (
    "INSERT INTO log (version, at, batch, type, kind, namespace, name, uid, before, after, data) "
    "SELECT n.version, $1, $2, n.type, n.kind, n.namespace, n.name, n.uid, n.before, n.after, n.data "
    "FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::bytea[], "
    "$11::bytea[]) AS n(version, type, kind, namespace, name, uid, before, after, data)"
)
_COUNT_AND_TELL = "UPDATE counter SET version = $1 RETURNING pg_notify($2, '')"


class Missing(Exception):
    """The view was asked for something that has not been loaded."""

    def __init__(self, key: Key | None = None, owner: str | None = None) -> None:
        super().__init__(key or owner)
        self.key = key
        self.owner = owner


class Loaded:
    """The committed objects that a batch has loaded."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._records: dict[Key, Record | None] = {}
        self._owned: dict[str, list[Key]] = {}

    def find(self, key: Key) -> Record | None:
        """The object at a key; raises Missing."""
        try:
            return self._records[key]
        except KeyError:
            raise Missing(key=key) from None

    def owned(self, uid: str) -> list[Key]:
        """What names this uid as an owner; raises Missing."""
        try:
            return self._owned[uid]
        except KeyError:
            raise Missing(owner=uid) from None

    async def load_for(self, operations: Sequence[Operation]) -> None:
        """Load the objects that the operations name, and their owners."""
        keys = {operation.key for operation in operations}
        for operation in operations:
            if not isinstance(operation, Delete):
                references = operation.obj["metadata"].get("ownerReferences") or ()
                keys |= _owner_keys(references, operation.key.namespace)
        await self._load(keys)

    async def supply(self, error: Exception) -> bool:
        """Load what was missing; false when the error is another one."""
        if not isinstance(error, Missing):
            return False
        if error.key is not None:
            await self._load({error.key})
        if error.owner is not None:
            await self._load_owned(error.owner)
        return True

    async def _load(self, keys: Iterable[Key]) -> None:
        wanted = [key for key in keys if key not in self._records]
        if not wanted:
            return
        self._records.update(dict.fromkeys(wanted))
        for row in await self._connection.fetch(_LOAD, *_columns(wanted, 3)):
            key = Key(row[0], row[1], row[2])
            self._records[key] = Record(key, row[3], row[4], row[5])

    async def _load_owned(self, owner: str) -> None:
        """Everything below an owner at once, and the other owners of it: a cascade asks for all of these."""
        self._owned.setdefault(owner, [])
        others: set[Key] = set()
        found: dict[str, list[Key]] = {owner: []}
        for row in await self._connection.fetch(_LOAD_OWNED, owner):
            key = Key(row[1], row[2], row[3])
            record = Record(key, row[4], row[5], row[6])
            self._records[key] = record
            found.setdefault(row[0], []).append(key)
            found.setdefault(record.uid, [])
            others |= _owner_keys(record.obj["metadata"].get("ownerReferences", ()), key.namespace)
        self._owned.update(found)
        await self._load(others)


async def write_ledger(connection: Connection, ledger: Transaction, at: int, batch: UUID, channel: str) -> None:
    """Write what was decided, inside the open transaction."""
    puts: list[tuple[Any, ...]] = []
    drops: list[Key] = []
    for key, entry in ledger.latest.items():
        if (state := entry.after) is None:
            drops.append(key)
        else:
            record = entry.record
            labels, fields = orjson.dumps(state.labels).decode(), orjson.dumps(state.fields).decode()
            puts.append((*key, record.uid, record.version, labels, fields, record.data))
    links = [(owner, *key) for (owner, key), present in ledger.links.items() if present]
    unlinks = [(owner, *key) for (owner, key), present in ledger.links.items() if not present]
    entries = [
        (r.version, e.type.value, *r.key, r.uid, encode_state(e.before), encode_state(e.after), r.data)
        for e in ledger.entries
        for r in (e.record,)
    ]
    for statement, rows, width in ((_PUT, puts, 8), (_DROP, drops, 3), (_LINK, links, 4), (_UNLINK, unlinks, 4)):
        if rows:
            await connection.execute(statement, *_columns(rows, width))
    await connection.execute(_LOG, at, batch, *_columns(entries, 9))
    await connection.execute(_COUNT_AND_TELL, ledger.version, channel)


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [[row[at] for row in rows] for at in range(width)]


def _owner_keys(references: Iterable[dict[str, Any]], namespace: str) -> set[Key]:
    keys = (ownership.owner_key(reference, namespace) for reference in references)
    return {key for key in keys if key is not None}


async def trim_log(connection: Connection, keep: int, since: int, step: int) -> int:
    """Remove the oldest entries that are too many or from before `since`, at most `step`; how many went."""
    row = await connection.fetchrow("SELECT min(version), max(version) FROM log")
    oldest, latest = row[0], row[1]
    if oldest is None:
        return 0
    young = await connection.fetchval(
        "SELECT version FROM log WHERE version < $1 AND at >= $2 ORDER BY version LIMIT 1", oldest + step, since
    )
    by_age = young - 1 if young is not None else oldest + step - 1
    bound = min(max(latest - keep, by_age), oldest + step - 1, latest - 1)
    if bound < oldest:
        return 0
    await connection.execute("DELETE FROM log WHERE version <= $1", bound)
    return int(bound - oldest + 1)
