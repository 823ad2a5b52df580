"""The tables, and how older ones become the present ones.

`objects` holds the present, `log` the recent past, `owned` who owns whom, `counter` the latest version (kept apart
from the log, which is trimmed). The number of the schema is SQLite's `user_version`; `MIGRATIONS[n]` leads from n to
n + 1, and all steps that are missing are one transaction.
"""

from __future__ import annotations

import sqlite3

from isthmus.errors import Misconfigured

_FIRST = """
CREATE TABLE counter (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL) STRICT;
INSERT INTO counter VALUES (1, 0);
CREATE TABLE objects (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    uid TEXT NOT NULL, version INTEGER NOT NULL,
    labels TEXT NOT NULL, fields TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (kind, namespace, name)
) STRICT;
CREATE TABLE owned (
    owner TEXT NOT NULL, kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY (owner, kind, namespace, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE log (
    version INTEGER PRIMARY KEY, at INTEGER NOT NULL, type TEXT NOT NULL,
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,
    before BLOB, after BLOB, data BLOB NOT NULL
) STRICT;
"""

MIGRATIONS: tuple[str, ...] = (_FIRST,)


def migrate(connection: sqlite3.Connection, path: str, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring the tables up to date; raises Misconfigured when they are newer than this program."""
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > len(migrations):
        raise Misconfigured(
            f"the database {path} was written by a newer Isthmus (schema {found}; this one knows {len(migrations)}); "
            "install that version again, or restore a backup from before the upgrade"
        )
    if found == len(migrations):
        return
    steps = "".join(migrations[found:])
    try:
        connection.executescript(f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {len(migrations)}; COMMIT;")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.rollback()
        raise
