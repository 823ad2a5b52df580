"""Objects in PostgreSQL: the store for several replicas.

Belongs here: SQL of PostgreSQL, its connections and its errors. Does not: what a write means (`changes`), who is
notified (`hub`).
"""

from .store import PostgresStore

__all__ = ["PostgresStore"]
