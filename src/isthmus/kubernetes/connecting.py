"""Connections that are given up while they are made are closed: httpcore forgets those in the middle of a handshake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class _Stream(Protocol):
    async def aclose(self) -> None: ...


class Handshake:
    """The `trace` of one request: in which httpcore reports what happens to its connection."""

    def __init__(self) -> None:
        self._stream: _Stream | None = None

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """Hold the connection until it is encrypted; whoever is cancelled before leaves it to us."""
        if event == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
        elif event == "connection.start_tls.complete":
            self._stream = None
        elif event == "connection.start_tls.failed" and self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.aclose()
