"""Writing to SQLite: a decided ledger becomes rows; the log is trimmed."""

from __future__ import annotations

import sqlite3

import orjson

from isthmus.store.changes import Transaction
from isthmus.store.entries import encode_state

_PUT = (
    "INSERT INTO objects (kind, namespace, name, uid, version, labels, fields, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (kind, namespace, name) DO UPDATE SET uid = excluded.uid, version = excluded.version, "
    "labels = excluded.labels, fields = excluded.fields, data = excluded.data"
)
_DROP = "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?"
_LINK = "INSERT OR IGNORE INTO owned (owner, kind, namespace, name) VALUES (?, ?, ?, ?)"
_UNLINK = "DELETE FROM owned WHERE owner = ? AND kind = ? AND namespace = ? AND name = ?"
_LOG = (
    "INSERT INTO log (version, at, type, kind, namespace, name, uid, before, after, data) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def write_ledger(connection: sqlite3.Connection, ledger: Transaction, at: int) -> None:
    """Write what was decided, inside the open transaction."""
    puts, drops = [], []
    for key, entry in ledger.latest.items():
        if (state := entry.after) is None:
            drops.append(key)
        else:
            record = entry.record
            labels, fields = orjson.dumps(state.labels).decode(), orjson.dumps(state.fields).decode()
            puts.append((*key, record.uid, record.version, labels, fields, record.data))
    if puts:
        connection.executemany(_PUT, puts)
    if drops:
        connection.executemany(_DROP, drops)
    for (owner, key), present in ledger.links.items():
        connection.execute(_LINK if present else _UNLINK, (owner, *key))
    connection.executemany(
        _LOG,
        [
            (r.version, at, e.type.value, *r.key, r.uid, encode_state(e.before), encode_state(e.after), r.data)
            for e in ledger.entries
            for r in (e.record,)
        ],
    )
    connection.execute("UPDATE counter SET version = ?", (ledger.version,))


def trim_log(connection: sqlite3.Connection, keep: int, since: int, step: int) -> int:
    """Remove the oldest entries that are too many or from before `since`, at most `step`; how many went."""
    oldest, latest = connection.execute("SELECT min(version), max(version) FROM log").fetchone()
    if oldest is None:
        return 0
    # By age, the first of the oldest that is young enough ends the search. Where the clock jumped back, entries
    # stay longer and go by number.
    young = connection.execute(
        "SELECT version FROM log WHERE version < ? AND at >= ? ORDER BY version LIMIT 1", (oldest + step, since)
    ).fetchone()
    by_age = young[0] - 1 if young else oldest + step - 1
    bound = min(max(latest - keep, by_age), oldest + step - 1, latest - 1)
    if bound < oldest:
        return 0
    connection.execute("DELETE FROM log WHERE version <= ?", (bound,))
    return int(bound - oldest + 1)
