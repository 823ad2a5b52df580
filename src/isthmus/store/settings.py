"""How much the store keeps and how long it waits. Each value with its unit, its default and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of a store. The defaults suit one server with tens of thousands of objects."""

    batch: int = 512
    """Writes in one transaction, at most. Enough to share one fsync among all callers of a burst; few enough that
    applying them keeps the event loop busy for milliseconds only."""

    batch_bytes: int = 16 * 2**20
    """Bytes of new objects in one transaction, about. Bounds memory when the objects are large."""

    keep_changes: int = 50_000
    """Changes kept for watchers that come back. About 100 MB of disk with objects of 2 kB."""

    keep_seconds: float = 3600.0
    """Seconds a change is kept. A watcher that was away for longer lists again, which is cheaper by then."""

    trim_interval: float = 5.0
    """Seconds between looks at whether old changes may go."""

    trim_step: int = 5_000
    """Changes removed at once; small, so that no write waits long behind it."""

    recent_changes: int = 4_096
    """Latest changes held in memory, so that most watches start without reading the disk."""

    recent_bytes: int = 16 * 2**20
    """Bytes of objects held for the same purpose, at most."""

    buffer_changes: int = 10_000
    """Changes waiting for one watcher, at most. One that falls further behind is asked to list again."""

    buffer_bytes: int = 64 * 2**20
    """Bytes waiting for one watcher, at most. Objects are shared among watchers, so this is an upper bound."""

    wake_cost: float = 0.00002
    """Seconds to leave between two rounds of waking, per watcher woken. At rest a change is reported at once; under
    load 200 watchers are woken every 4 ms instead of for every change, which leaves the processor to the work."""

    piece_bytes: int = 32 * 2**20
    """Bytes of objects read from the database at once, about. Whatever was accepted must be read again, however much it
    is; databases bound the length of one value, and memory the rest."""

    lock_wait: float = 5.0
    """Seconds a write waits for another program that holds the database locked."""

    inline_rows: int = 256
    """Rows a list may have to be read on the event loop (SQLite): about a millisecond. Longer ones use a thread."""

    connections: int = 8
    """Connections for reading (PostgreSQL). More do not make a server of few cores faster."""

    schema: str = "isthmus"
    """The schema that holds the tables (PostgreSQL), so that a database can be shared."""

    following: bool = True
    """Whether changes are followed, so that the store can be watched. One that serves a few reads and writes, such as
    those of a lease, does without (PostgreSQL, Kubernetes)."""

    poll_interval: float = 1.0
    """Seconds between looks for changes of other replicas when no notification came (PostgreSQL)."""

    answer_wait: float = 30.0
    """Seconds to wait for an answer of the server (PostgreSQL, Kubernetes)."""

    lookup_wait: float = 10.0
    """Seconds to find out whether a commit whose answer was lost took place (PostgreSQL)."""

    requests: int = 32
    """Requests under way at once (Kubernetes). API servers take a few hundred from all clients together."""

    page: int = 500
    """Objects asked for at once in a long list (Kubernetes). About a megabyte, which a server sends without pain."""

    silence: float = 150.0
    """Seconds without a word after which a watch is taken for dead (Kubernetes). A bookmark comes each minute."""

    removal_wait: float = 5.0
    """Seconds to wait for the watch to report a removal of ours (Kubernetes). Usually milliseconds."""
