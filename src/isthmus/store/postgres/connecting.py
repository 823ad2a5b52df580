"""Connections to PostgreSQL and their errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from isthmus.errors import Misconfigured, StoreUnavailable
from isthmus.store.settings import StoreSettings

try:
    import asyncpg
except ImportError as missing:
    raise Misconfigured("PostgreSQL needs the package asyncpg; install isthmus[postgres]") from missing

log = logging.getLogger(__name__)

Connection: TypeAlias = Any  # asyncpg carries no types
Pool: TypeAlias = Any

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_CONNECT_WAIT = 5.0

LOST: tuple[type[Exception], ...] = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # the server was stopped, or is starting
    asyncpg.InternalClientError,  # the connection broke in the middle of an answer
)
"""The connection is gone, or its state is unknown."""

_REFUSED = (
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.PostgresSystemError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
)
_WRONG = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)


class _Plain(asyncpg.Connection):  # type: ignore[misc]
    """A connection that is given back to the pool without a question to the server: ours leave nothing behind."""

    def get_reset_query(self) -> str:
        return ""


def address_of(url: str) -> str:
    """The address without its password, for messages."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


@contextmanager
def translating(url: str, consequence: str = "") -> Iterator[None]:
    """Turn errors of the connection and of the server's state into ours; leave the others. Where the database is stays
    in the log: anybody who asks the API may read the message."""
    ending = f"; {consequence}" if consequence else ""
    try:
        yield
    except _WRONG as error:
        raise Misconfigured(
            f"PostgreSQL at {address_of(url)} refuses: {error}; check address, user and rights"
        ) from error
    except _REFUSED as error:
        log.warning("store.refused database=%s error=%s", address_of(url), error)
        raise StoreUnavailable(f"PostgreSQL cannot do this now; the server's log says why{ending}") from error
    except LOST as error:
        log.warning("store.lost database=%s error=%r", address_of(url), error)
        raise StoreUnavailable(f"PostgreSQL does not answer{ending}") from error


def checked_schema(name: str) -> str:
    """The name of the schema; raises Misconfigured when it would have to be quoted."""
    if not _SCHEMA.fullmatch(name):
        raise Misconfigured(f"{name!r} cannot name a schema; use lower-case letters, digits and _, at most 50")
    return name


def _options(settings: StoreSettings) -> dict[str, Any]:
    return {
        "timeout": _CONNECT_WAIT,
        "command_timeout": settings.answer_wait,
        "server_settings": {
            "application_name": "isthmus",
            "search_path": settings.schema,
            "lock_timeout": str(int(settings.lock_wait * 1000)),
            # A replica that froze in a transaction must not hold the others up: it is put out before they give up.
            "idle_in_transaction_session_timeout": str(int(settings.lock_wait * 800)),
        },
    }


async def connect(url: str, settings: StoreSettings) -> Connection:
    """One connection."""
    connection: Connection = await asyncpg.connect(url, **_options(settings))
    return connection


async def connect_writer(url: str, settings: StoreSettings) -> Connection:
    """A connection whose commits are on disk when they return, whatever the server's default."""
    connection = await connect(url, settings)
    if await connection.fetchval("SHOW synchronous_commit") == "off":
        await connection.execute("SET synchronous_commit = on")
    return connection


async def connect_pool(url: str, settings: StoreSettings) -> Pool:
    """Connections for reading."""
    pool: Pool = await asyncpg.create_pool(
        url, min_size=1, max_size=settings.connections, connection_class=_Plain, **_options(settings)
    )
    return pool
