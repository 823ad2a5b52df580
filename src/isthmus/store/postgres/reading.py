"""Reading from PostgreSQL: one object, a page, the log. One statement is one snapshot.

What is read at once is bounded in bytes: a short statement stops by a running sum, which looks at the lengths alone; a
long one fetches fewer rows at a time when they are large.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from isthmus.store.base import EventType, Key, Page, Query, Record
from isthmus.store.entries import Entry, decode_state
from isthmus.store.paging import Position, decode_position, encode_position, page_end, require_kept
from isthmus.store.selecting import Conditions

from .connecting import Connection

GET = "SELECT uid, version, data FROM objects WHERE kind = $1 AND namespace = $2 AND name = $3"
VERSION = "SELECT version FROM counter"
_ENTRY = "version, type, kind, namespace, name, uid, before, after, data"
_SUM = "sum(octet_length(data)) OVER (ORDER BY version) - octet_length(data) AS preceding"
TAIL = (
    f"SELECT {_ENTRY} FROM (SELECT {_ENTRY}, {_SUM} FROM log "  # noqa: S608
    "WHERE version > $1 ORDER BY version LIMIT $2) tail WHERE preceding < $3 ORDER BY version"
)
_PAST = (
    f"SELECT {_ENTRY} FROM (SELECT {_ENTRY}, {_SUM} FROM log WHERE version > $1 AND version <= $2 "  # noqa: S608
    "AND kind = $3 AND ($4::text IS NULL OR namespace = $4) ORDER BY version LIMIT $5) past "
    "WHERE preceding < $6 ORDER BY version"
)
REMOVED = "SELECT EXISTS (SELECT FROM log WHERE version > $1 AND kind = 'Tenant' AND name = $2 AND type = 'DELETED')"
_BOUNDS = "SELECT version, coalesce((SELECT min(version) FROM log), version + 1) AS oldest FROM counter"
_SHORT = 1_000
_FIRST = 100
"""Rows of a long list that are fetched before it is known how large they are."""


class _PostgresConditions(Conditions):
    def parameter(self, value: str | int) -> str:
        self.parameters.append(value)
        return f"${len(self.parameters)}"

    def member(self, column: str, key: str) -> str:
        return f"{column} ->> {self.parameter(key)}"


async def read_page(
    connection: Connection, query: Query, limit: int | None, token: str | None, most_bytes: int | None, piece: int
) -> Page:
    """A page, at one version, read in pieces of about so many bytes."""
    position = decode_position(token) if token else None
    most = sys.maxsize if most_bytes is None else most_bytes
    if limit is not None and limit <= _SHORT and most <= 2 * piece:
        version, oldest, records = await _read_short(connection, query, position, limit, most)
    else:
        version, oldest, records = await _read_long(connection, query, position, limit, most, piece)
    if position is not None:
        require_kept(position.version, oldest, "the continued list")
        version = position.version
    full = page_end(records, limit, most)
    if full is None:
        return Page(records, version)
    del records[full:]
    last = records[-1].key
    return Page(records, version, encode_position(Position(version, last.namespace, last.name)))


def _rows(where: Conditions, limit: int | None) -> str:
    some = "" if limit is None else f" LIMIT {limit + 1:d}"
    return f"SELECT namespace, name, uid, version, data FROM objects WHERE {where.sql} ORDER BY namespace, name{some}"  # noqa: S608


def _bounded_rows(where: Conditions, limit: int, most: int) -> str:
    """The rows until they have more than so many bytes, and one more, which says that there are more."""
    running = "sum(octet_length(data)) OVER (ORDER BY namespace, name) - octet_length(data)"
    inner = f"SELECT namespace, name, uid, version, data, {running} AS preceding FROM objects WHERE {where.sql}"  # noqa: S608
    ordered = f"{inner} ORDER BY namespace, name LIMIT {limit + 1:d}"
    before = "lag(preceding, 1, 0::numeric) OVER (ORDER BY namespace, name) AS previous"
    kept = f"SELECT *, {before} FROM ({ordered}) counted"  # noqa: S608
    return f"SELECT namespace, name, uid, version, data FROM ({kept}) kept WHERE previous <= {most:d}"  # noqa: S608


async def _read_short(
    connection: Connection, query: Query, after: Position | None, limit: int, most: int
) -> tuple[int, int, list[Record]]:
    """In one statement, which is one journey to the server and one snapshot."""
    where = _PostgresConditions(query, after)
    found = _bounded_rows(where, limit, most)
    rows = await connection.fetch(
        "SELECT b.version, b.oldest, o.namespace, o.name, o.uid, o.version, o.data "  # noqa: S608
        f"FROM ({_BOUNDS}) b LEFT JOIN LATERAL ({found}) o ON true ORDER BY o.namespace, o.name",
        *where.parameters,
    )
    kind = query.kind.name
    records = [Record(Key(kind, row[2], row[3]), row[4], row[5], row[6]) for row in rows if row[4] is not None]
    return rows[0][0], rows[0][1], records


async def _read_long(
    connection: Connection, query: Query, after: Position | None, limit: int | None, most: int, piece: int
) -> tuple[int, int, list[Record]]:
    """By a cursor, so that it comes in pieces and the event loop can breathe."""
    where = _PostgresConditions(query, after)
    kind = query.kind.name
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        version, oldest = await connection.fetchrow(_BOUNDS)
        cursor = await connection.cursor(_rows(where, limit), *where.parameters)
        records: list[Record] = []
        total, last, some = 0, 0, _FIRST
        while total - last <= most and (rows := await cursor.fetch(some)):  # one more than make up so many, or all
            records += [Record(Key(kind, row[0], row[1]), row[2], row[3], row[4]) for row in rows]
            size = sum(len(row[4]) for row in rows)
            total, last = total + size, len(records[-1].data)
            some = max(1, min(_SHORT, piece * len(rows) // max(1, size)))
    return version, oldest, records


async def read_log(connection: Connection, query: Query, after: int, until: int, limit: int, piece: int) -> list[Entry]:
    """The first entries of the query's kind and namespace in a range of versions; none after so many bytes."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        _, oldest = await connection.fetchrow(_BOUNDS)
        require_kept(after, oldest, "the watch")
        rows = await connection.fetch(_PAST, after, until, query.kind.name, query.namespace, limit, piece)
    return [entry_of(row) for row in rows]


def entry_of(row: Mapping[str, Any]) -> Entry:
    """A row of the log."""
    key = Key(row["kind"], row["namespace"], row["name"])
    record = Record(key, row["uid"], row["version"], row["data"])
    return Entry(EventType(row["type"]), record, decode_state(row["before"]), decode_state(row["after"]))
