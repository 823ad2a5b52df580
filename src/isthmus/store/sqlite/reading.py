"""Reading from SQLite: one object, a page, the log.

Every step of a statement gives Python's lock away and must win it back, which is slow in a thread beside a busy
event loop. So what is short is read on the event loop itself, and what is long is read in a thread by a statement
of a single step: SQLite joins the rows into one text, which is taken apart here. Objects are JSON without line
breaks and keys have no spaces, so a line break parts the rows and a space the columns.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from isthmus.store.base import EventType, Key, Page, Query, Record
from isthmus.store.entries import Entry, decode_state
from isthmus.store.paging import Position, decode_position, encode_position, require_kept
from isthmus.store.selecting import Conditions

_GET = "SELECT uid, version, data FROM objects WHERE kind = ? AND namespace = ? AND name = ?"
_OWNED = "SELECT kind, namespace, name FROM owned WHERE owner = ? ORDER BY kind, namespace, name"
_VERSION = "SELECT version FROM counter"
_OLDEST = "SELECT min(version) FROM log"
_LONG = 2_000


class _Conditions(Conditions):
    def parameter(self, value: str | int) -> str:
        self.parameters.append(value)
        return "?"

    def member(self, column: str, key: str) -> str:
        path = self.parameter(f'$."{key}"')
        return f"json_extract({column}, {path})"


def read_object(connection: sqlite3.Connection, key: Key) -> Record | None:
    """The object at a key."""
    row = connection.execute(_GET, key).fetchone()
    return Record(key, row[0], row[1], row[2]) if row else None


def read_owned(connection: sqlite3.Connection, uid: str) -> Iterator[Key]:
    """The objects that name this uid as an owner."""
    return map(Key._make, connection.execute(_OWNED, (uid,)))


def read_version(connection: sqlite3.Connection) -> int:
    """The version of the latest change."""
    version: int = connection.execute(_VERSION).fetchone()[0]
    return version


def read_page(connection: sqlite3.Connection, query: Query, limit: int | None, token: str | None, long: bool) -> Page:
    """A page, at one version. `long`: in few steps, for threads."""
    position = decode_position(token) if token else None
    with _snapshot(connection):
        version = read_version(connection)
        if position is not None:
            require_kept(position.version, _oldest(connection, version), "the continued list")
            version = position.version
        rows = _long_rows if long else _short_rows
        records = rows(connection, query, position, None if limit is None else limit + 1)
    if limit is None or len(records) <= limit:
        return Page(records, version)
    del records[limit:]
    last = records[-1].key
    return Page(records, version, encode_position(Position(version, last.namespace, last.name)))


def read_log(connection: sqlite3.Connection, query: Query, after: int, until: int, limit: int) -> list[Entry]:
    """The first entries of the query's kind and namespace in a range of versions."""
    place, parameters = "kind = ?", [query.kind.name]
    if query.namespace is not None:
        place, parameters = "kind = ? AND namespace = ?", [query.kind.name, query.namespace]
    with _snapshot(connection):
        require_kept(after, _oldest(connection, read_version(connection)), "the watch")
        rows = connection.execute(
            "SELECT version, type, kind, namespace, name, uid, before, after, data FROM log "  # noqa: S608
            f"WHERE version > ? AND version <= ? AND {place} ORDER BY version LIMIT ?",
            (after, until, *parameters, limit),
        ).fetchall()
    return [
        Entry(
            EventType(row[1]),
            Record(Key(*row[2:5]), row[5], row[0], row[8]),
            decode_state(row[6]),
            decode_state(row[7]),
        )
        for row in rows
    ]


def _oldest(connection: sqlite3.Connection, version: int) -> int:
    oldest: int | None = connection.execute(_OLDEST).fetchone()[0]
    return version + 1 if oldest is None else oldest


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")  # nothing was written; ends the snapshot


def _short_rows(
    connection: sqlite3.Connection, query: Query, after: Position | None, limit: int | None
) -> list[Record]:
    where = _Conditions(query, after)
    kind = query.kind.name
    rows = connection.execute(
        f"SELECT namespace, name, uid, version, data FROM objects WHERE {where.sql} "  # noqa: S608
        "ORDER BY namespace, name LIMIT ?",
        (*where.parameters, -1 if limit is None else limit),
    )
    return [Record(Key(kind, row[0], row[1]), row[2], row[3], row[4]) for row in rows.fetchall()]


def _long_rows(connection: sqlite3.Connection, query: Query, after: Position | None, limit: int | None) -> list[Record]:
    records: list[Record] = []
    while limit is None or len(records) < limit:
        where = _Conditions(query, after)
        step = _LONG if limit is None else min(_LONG, limit - len(records))
        joined: bytes | None = connection.execute(
            "SELECT CAST(group_concat(namespace || ' ' || name || ' ' || uid || ' ' || version || ' ' || data, x'0a') "  # noqa: S608
            f"AS BLOB) FROM (SELECT * FROM objects WHERE {where.sql} ORDER BY namespace, name LIMIT ?)",
            (*where.parameters, step),
        ).fetchone()[0]
        if joined is None:
            break
        lines = joined.split(b"\n")
        records += map(_parsed, [query.kind.name] * len(lines), lines)
        if len(lines) < step:
            break
        last = records[-1].key
        after = Position(0, last.namespace, last.name)
    return records


def _parsed(kind: str, line: bytes) -> Record:
    namespace, name, uid, version, data = line.split(b" ", 4)
    return Record(Key(kind, namespace.decode(), name.decode()), uid.decode(), int(version), data)
