"""HTTP/1.1 on a socket: one connection, one exchange after the other.

The standard library's `http.client` would do, but importing it adds 19 ms to the 45 ms that `isthmus run` takes to
start (docs/design/0018), and all of that command is to add less than 150 ms to a command. What is needed of HTTP here
is little: a head that we write, a head that we read, and a body framed by its length, by chunks, or by the end of the
connection.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from io import BufferedReader
from typing import cast

_LINE = 65_536
_HEADERS = 256
_BLOCK = 1 << 16


class Connection:
    """One connection to the server."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        # Buffered: heads and chunk sizes are read line by line.
        self._input = cast("BufferedReader", sock.makefile("rb", _BLOCK))

    def send(self, head: bytes, body: bytes | Iterator[bytes] | None) -> None:
        """Write a request. A short body goes out in one piece with the head."""
        if body is None or isinstance(body, bytes):
            self.sock.sendall(head + (body or b""))
            return
        self.sock.sendall(head)
        try:
            for chunk in body:
                self.sock.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            # The server may have answered, for instance "too large", before it closed: that answer says more.
            return

    def response(self) -> Response:
        """Read the head of the answer; the provisional ones before it are passed over."""
        while True:
            line = self._line()
            version, _, rest = line.partition(b" ")
            code = rest[:3]
            if not version.startswith(b"HTTP/1.") or not code.isdigit():
                raise ConnectionError("the answer is not HTTP")
            headers = self._headers()
            status = int(code)
            if status >= 200:
                return Response(self, self._input, status, headers, version == b"HTTP/1.0")

    def close(self) -> None:
        """Let go of it."""
        self._input.close()
        self.sock.close()

    def _line(self) -> bytes:
        line = self._input.readline(_LINE + 1)
        if not line.endswith(b"\n"):
            raise ConnectionError(
                "the connection was closed" if len(line) <= _LINE else "a line of the head is too long"
            )
        return line.rstrip(b"\r\n")

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for _ in range(_HEADERS):
            line = self._line()
            if not line:
                return headers
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                raise ConnectionError("the answer is not HTTP")
            key, text = name.lower(), value.strip()
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        raise ConnectionError("the answer has too many headers")


class Response:
    """An answer whose body is read as it comes."""

    def __init__(
        self, connection: Connection, source: BufferedReader, status: int, headers: dict[str, str], old: bool
    ) -> None:
        self.status, self.headers = status, headers
        self._connection, self._source = connection, source
        self._chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
        length = headers.get("content-length", "")
        self._left: int | None = None
        self._first = True
        if status in (204, 304) or self._chunked:
            self._left = 0
        elif length.isdigit():
            self._left = int(length)
        self.complete = self._left == 0 and not self._chunked
        # Without a length or chunks the body ends with the connection, which is then of no more use.
        self.reusable = self._left is not None and not old and "close" not in headers.get("connection", "").lower()

    def read1(self, size: int = _BLOCK) -> bytes:
        """What there is, at most `size` bytes; empty at the end. Raises ConnectionError if that is cut off."""
        if self.complete:
            return b""
        if self._chunked and self._left == 0 and not self._next_chunk():
            return b""
        wanted = size if self._left is None else min(size, self._left)
        data = self._source.read1(wanted)
        if not data:
            if self._left is None:
                self.complete = True
                return b""
            raise ConnectionError("the connection was closed")
        if self._left is not None:
            self._left -= len(data)
            self.complete = self._left == 0 and not self._chunked
        return data

    def read(self) -> bytes:
        """The whole rest."""
        return b"".join(iter(self.read1, b""))

    def _next_chunk(self) -> bool:
        if not self._first and self._connection._line():
            raise ConnectionError("a chunk of the answer has the wrong length")
        self._first = False
        digits = self._connection._line().partition(b";")[0].strip()
        try:
            self._left = int(digits, 16)
        except ValueError:
            raise ConnectionError("a chunk of the answer has no length") from None
        if self._left:
            return True
        self._connection._headers()
        self.complete = True
        return False
