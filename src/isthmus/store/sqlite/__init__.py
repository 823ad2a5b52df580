"""Objects in one SQLite file: the embedded store, for one process.

Belongs here: SQL of SQLite, its connections, its locks and its errors. Does not: what a write means (`changes`),
who is notified (`hub`).
"""

from .store import SqliteStore

__all__ = ["SqliteStore"]
