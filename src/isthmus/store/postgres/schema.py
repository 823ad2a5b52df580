"""The tables in PostgreSQL, and how older ones become the present ones.

The same tables as in SQLite. Words compare byte by byte (`COLLATE "C"`), so that lists have the same order
everywhere. `counter.schema` is the number of the schema; `MIGRATIONS[n]` leads from n to n + 1.
"""

from __future__ import annotations

from isthmus.errors import Misconfigured

from .connecting import Connection

_FIRST = """
CREATE TABLE objects (
    kind text COLLATE "C" NOT NULL, namespace text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    uid text NOT NULL, version bigint NOT NULL,
    labels jsonb NOT NULL, fields jsonb NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (kind, namespace, name)
);
CREATE TABLE owned (
    owner text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL, namespace text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    PRIMARY KEY (owner, kind, namespace, name)
);
CREATE TABLE log (
    version bigint PRIMARY KEY, at bigint NOT NULL, batch uuid NOT NULL, type text NOT NULL,
    kind text COLLATE "C" NOT NULL, namespace text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    uid text NOT NULL, before bytea, after bytea, data bytea NOT NULL
);
"""

MIGRATIONS: tuple[str, ...] = (_FIRST,)
_LOCK = 0x697374686D7573  # any number that nobody else uses


async def migrate(connection: Connection, schema: str, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring the tables up to date, one replica at a time."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await connection.fetchval("SELECT to_regnamespace($1) IS NULL", schema):
            await connection.execute(f"CREATE SCHEMA {schema}")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS counter "
            "(id boolean PRIMARY KEY DEFAULT true CHECK (id), version bigint NOT NULL, schema integer NOT NULL)"
        )
        await connection.execute("INSERT INTO counter (version, schema) VALUES (0, 0) ON CONFLICT DO NOTHING")
        found = await connection.fetchval("SELECT schema FROM counter")
        if found > len(migrations):
            raise Misconfigured(
                f"the tables in the schema {schema} were written by a newer Isthmus (schema {found}; this one knows "
                f"{len(migrations)}); install that version again, or restore a backup from before the upgrade"
            )
        for step in migrations[found:]:
            await connection.execute(step)
        await connection.execute("UPDATE counter SET schema = $1", len(migrations))
