"""The HTTP client and what a user imports: `Client` and `AsyncClient`, which offer the same methods.

Belongs here: finding the server, building requests, reading answers, sending folders, following logs and watches.
Does not: printing, prompts, exit codes (those are `cli/`), and anything that the server decides.

What is decided lives in modules that both clients share: `requests` and `answers` (one exchange), `flows` (several
exchanges, as generators), `resuming` (streams that outlive their connection), `jobs` (manifests), `operations` (the
clients' methods). The two clients only move bytes. The synchronous one uses the standard library alone and nothing
heavy is imported before it is needed, because `isthmus run` must feel like running the command here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asynchronous import AsyncClient, AsyncJobHandle
    from .sync import Client, JobHandle

__all__ = ["AsyncClient", "AsyncJobHandle", "Client", "JobHandle"]

_HOMES = {"AsyncClient": "asynchronous", "AsyncJobHandle": "asynchronous", "Client": "sync", "JobHandle": "sync"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
