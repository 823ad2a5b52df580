"""Reading from PostgreSQL: one object, a page, the log. One statement is one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.store.base import EventType, Key, Page, Query, Record
from isthmus.store.entries import Entry, decode_state
from isthmus.store.paging import Position, decode_position, encode_position, require_kept
from isthmus.store.selecting import Conditions

from .connecting import Connection

GET = "SELECT uid, version, data FROM objects WHERE kind = $1 AND namespace = $2 AND name = $3"
VERSION = "SELECT version FROM counter"
TAIL = (
    "SELECT version, type, kind, namespace, name, uid, before, after, data FROM log "
    "WHERE version > $1 ORDER BY version LIMIT $2"
)
_BOUNDS = "SELECT version, coalesce((SELECT min(version) FROM log), version + 1) AS oldest FROM counter"
_SHORT = 1_000


class _Conditions(Conditions):
    def parameter(self, value: str | int) -> str:
        self.parameters.append(value)
        return f"${len(self.parameters)}"

    def member(self, column: str, key: str) -> str:
        return f"{column} ->> {self.parameter(key)}"


async def read_page(connection: Connection, query: Query, limit: int | None, token: str | None) -> Page:
    """A page, at one version."""
    position = decode_position(token) if token else None
    if limit is not None and limit <= _SHORT:
        version, oldest, records = await _read_short(connection, query, position, limit)
    else:
        version, oldest, records = await _read_long(connection, query, position, limit)
    if position is not None:
        require_kept(position.version, oldest, "the continued list")
        version = position.version
    if limit is None or len(records) <= limit:
        return Page(records, version)
    del records[limit:]
    last = records[-1].key
    return Page(records, version, encode_position(Position(version, last.namespace, last.name)))


def _rows(where: Conditions, limit: int | None) -> str:
    some = "" if limit is None else f" LIMIT {limit + 1:d}"
    return f"SELECT namespace, name, uid, version, data FROM objects WHERE {where.sql} ORDER BY namespace, name{some}"  # noqa: S608


async def _read_short(
    connection: Connection, query: Query, after: Position | None, limit: int
) -> tuple[int, int, list[Record]]:
    """In one statement, which is one journey to the server and one snapshot."""
    where = _Conditions(query, after)
    rows = await connection.fetch(
        "SELECT b.version, b.oldest, o.namespace, o.name, o.uid, o.version, o.data "  # noqa: S608
        f"FROM ({_BOUNDS}) b LEFT JOIN LATERAL ({_rows(where, limit)}) o ON true ORDER BY o.namespace, o.name",
        *where.parameters,
    )
    kind = query.kind.name
    found = [Record(Key(kind, row[2], row[3]), row[4], row[5], row[6]) for row in rows if row[4] is not None]
    return rows[0][0], rows[0][1], found


async def _read_long(
    connection: Connection, query: Query, after: Position | None, limit: int | None
) -> tuple[int, int, list[Record]]:
    """By a cursor, so that it comes in pieces and the event loop can breathe."""
    where = _Conditions(query, after)
    kind = query.kind.name
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        version, oldest = await connection.fetchrow(_BOUNDS)
        cursor = connection.cursor(_rows(where, limit), *where.parameters, prefetch=_SHORT)
        records = [Record(Key(kind, row[0], row[1]), row[2], row[3], row[4]) async for row in cursor]
    return version, oldest, records


async def read_log(connection: Connection, query: Query, after: int, until: int, limit: int) -> list[Entry]:
    """The first entries of the query's kind and namespace in a range of versions."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        _, oldest = await connection.fetchrow(_BOUNDS)
        require_kept(after, oldest, "the watch")
        rows = await connection.fetch(
            "SELECT version, type, kind, namespace, name, uid, before, after, data FROM log WHERE version > $1 "
            "AND version <= $2 AND kind = $3 AND ($4::text IS NULL OR namespace = $4) ORDER BY version LIMIT $5",
            after,
            until,
            query.kind.name,
            query.namespace,
            limit,
        )
    return [entry_of(row) for row in rows]


def entry_of(row: Mapping[str, Any]) -> Entry:
    """A row of the log."""
    key = Key(row["kind"], row["namespace"], row["name"])
    record = Record(key, row["uid"], row["version"], row["data"])
    return Entry(EventType(row["type"]), record, decode_state(row["before"]), decode_state(row["after"]))
