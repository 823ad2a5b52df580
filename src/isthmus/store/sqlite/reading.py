"""Reading from SQLite: one object, a page, the log.

Every step of a statement gives Python's lock away and must win it back, which is slow in a thread beside a busy
event loop. So what is short is read on the event loop itself, and what is long is read in a thread by a statement
of a single step: SQLite joins the rows into one text, which is taken apart here. Objects are JSON without line
breaks and keys have no spaces, so a line break parts the rows and a space the columns. SQLite itself refuses to make a
text longer than a piece may be; then fewer rows are joined, down to one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from isthmus.store.base import EventType, Key, Page, Query, Record
from isthmus.store.entries import Entry, decode_state
from isthmus.store.paging import Position, decode_position, encode_position, page_end, require_kept
from isthmus.store.selecting import Conditions

_GET = "SELECT uid, version, data FROM objects WHERE kind = ? AND namespace = ? AND name = ?"
_OWNED = "SELECT kind, namespace, name FROM owned WHERE owner = ? ORDER BY kind, namespace, name"
_VERSION = "SELECT version FROM counter"
_OLDEST = "SELECT min(version) FROM log"
_LONG = 2_000


class PageQuery(NamedTuple):
    """Which page."""

    query: Query
    limit: int | None = None
    token: str | None = None
    most_bytes: int | None = None


class _SqliteConditions(Conditions):
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


def read_page(connection: sqlite3.Connection, wanted: PageQuery, piece: int | None = None) -> Page:
    """A page, at one version. With `piece`: in few steps, for threads, and joined into so many bytes at most."""
    query, limit, token, most_bytes = wanted
    position = decode_position(token) if token else None
    with _snapshot(connection):
        version = read_version(connection)
        if position is not None:
            require_kept(position.version, _oldest(connection, version), "the continued list")
            version = position.version
        some = None if limit is None else limit + 1
        if piece is None:
            records = _short_rows(connection, query, position, some)
        else:
            records = _long_rows(connection, query, position, some, piece, most_bytes)
    full = page_end(records, limit, most_bytes)
    if full is None:
        return Page(records, version)
    del records[full:]
    last = records[-1].key
    return Page(records, version, encode_position(Position(version, last.namespace, last.name)))


def read_log(
    connection: sqlite3.Connection, query: Query, after: int, until: int, limit: int, most_bytes: int
) -> list[Entry]:
    """The first entries of the query's kind and namespace in a range of versions; none after `most_bytes`."""
    place, parameters = "kind = ?", [query.kind.name]
    if query.namespace is not None:
        place, parameters = "kind = ? AND namespace = ?", [query.kind.name, query.namespace]
    with _snapshot(connection):
        require_kept(after, _oldest(connection, read_version(connection)), "the watch")
        cursor = connection.execute(
            "SELECT version, type, kind, namespace, name, uid, before, after, data FROM log "  # noqa: S608
            f"WHERE version > ? AND version <= ? AND {place} ORDER BY version LIMIT ?",
            (after, until, *parameters, limit),
        )
        rows = list(_bounded(cursor, most_bytes))
    return [
        Entry(
            EventType(row[1]),
            Record(Key(*row[2:5]), row[5], row[0], row[8]),
            decode_state(row[6]),
            decode_state(row[7]),
        )
        for row in rows
    ]


def read_removed(connection: sqlite3.Connection, tenant: str, after: int) -> bool:
    """Whether the log reports the removal of a tenant after a version."""
    found = connection.execute(
        "SELECT 1 FROM log WHERE version > ? AND kind = 'Tenant' AND name = ? AND type = 'DELETED' LIMIT 1",
        (after, tenant),
    ).fetchone()
    return found is not None


def _bounded(cursor: sqlite3.Cursor, most_bytes: int) -> Iterator[tuple[Any, ...]]:
    """Rows until their last columns have so many bytes together."""
    total = 0
    for row in cursor:
        yield row
        total += len(row[-1])
        if total >= most_bytes:
            cursor.close()
            return


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
    where = _SqliteConditions(query, after)
    kind = query.kind.name
    rows = connection.execute(
        f"SELECT namespace, name, uid, version, data FROM objects WHERE {where.sql} "  # noqa: S608
        "ORDER BY namespace, name LIMIT ?",
        (*where.parameters, -1 if limit is None else limit),
    )
    return [Record(Key(kind, row[0], row[1]), row[2], row[3], row[4]) for row in rows.fetchall()]


def _long_rows(
    connection: sqlite3.Connection,
    query: Query,
    after: Position | None,
    limit: int | None,
    piece: int,
    most_bytes: int | None,
) -> list[Record]:
    """With `most_bytes`, at least one more than make up so many, if there are more."""
    records: list[Record] = []
    size, enough, step = 0, 0, _LONG
    while (limit is None or len(records) < limit) and (most_bytes is None or enough <= most_bytes):
        step = step if limit is None else min(step, limit - len(records))
        try:
            joined = _joined(connection, _SqliteConditions(query, after), step, piece if step > 1 else None)
        except sqlite3.DataError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_TOOBIG or step == 1:
                raise
            step = max(1, step // 8)
            continue
        if joined is None:
            break
        lines = joined.split(b"\n")
        records += map(_parsed, [query.kind.name] * len(lines), lines)
        if len(lines) < step:
            break
        last = records[-1].key
        after = Position(0, last.namespace, last.name)
        size += len(joined)
        if most_bytes is not None and size > most_bytes:  # with the keys; looked at more closely only now
            enough = sum(len(record.data) for record in records[:-1])
        step = min(_LONG, step * 2)
    return records


def _joined(connection: sqlite3.Connection, where: _SqliteConditions, rows: int, most: int | None) -> bytes | None:
    """The next rows as one text of at most so many bytes; raises DataError if they are longer."""
    usual = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most) if most else None
    try:
        joined: bytes | None = connection.execute(
            "SELECT CAST(group_concat(namespace || ' ' || name || ' ' || uid || ' ' || version || ' ' || data, x'0a') "  # noqa: S608
            f"AS BLOB) FROM (SELECT * FROM objects WHERE {where.sql} ORDER BY namespace, name LIMIT ?)",
            (*where.parameters, rows),
        ).fetchone()[0]
    finally:
        if usual is not None:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, usual)
    return joined


def _parsed(kind: str, line: bytes) -> Record:
    namespace, name, uid, version, data = line.split(b" ", 4)
    return Record(Key(kind, namespace.decode(), name.decode()), uid.decode(), int(version), data)
