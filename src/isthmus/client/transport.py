"""Bytes over HTTP: kept-alive connections, verified TLS, answers read along.

A transport may be used by several threads at once; each exchange has a connection to itself and gives it back when
the answer was read to its end. A kept connection that the server closed meanwhile is noticed before the answer
begins, and the exchange is repeated on a fresh one if that does no harm.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from isthmus.errors import Misconfigured, Unavailable, Unreachable

from .answers import Answer
from .kubeconfigs import Access
from .requests import Body, Request, headers_of
from .wire import Connection, Response

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

_CONNECT_TIMEOUT = 10.0
SLOW_SECONDS = 3.0
"""After this long without an answer, whoever looks on is notified."""
NO_TLS = "it does not speak TLS there; is it the right port, or is its address http:// instead of https://?"
KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


class Transport:
    """Exchanges with one server."""

    def __init__(self, access: Access, waiting: Callable[[], None] | None = None) -> None:
        parts = urlsplit(access.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misconfigured(f"{access.url!r} is not the address of a server; write it like http://127.0.0.1:7070")
        self.url = access.url
        self._secure, self._host = parts.scheme == "https", parts.hostname
        try:
            self._port = parts.port or (443 if self._secure else 80)
        except ValueError:
            raise Misconfigured(f"{access.url!r} has a port that is not a number") from None
        self._base = parts.path.rstrip("/")
        self._ca = access.ca
        self._waiting = waiting
        self._access = access
        self._headers = _head_lines({"Host": parts.netloc.rpartition("@")[2], **headers_of(access)})
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None

    def send(self, request: Request) -> Answer:
        """One exchange, read to its end."""
        connection, response = self._begin(request)
        try:
            body = response.read()
        except OSError as error:
            connection.close()
            raise self._lost(error) from None
        self._give_back(connection, response)
        return Answer(response.status, response.headers, body)

    def stream(self, request: Request) -> AnswerStream:
        """One exchange whose answer is read as it comes. Without a time limit: TCP notices a dead server."""
        connection, response = self._begin(request)
        connection.sock.settimeout(None)
        return AnswerStream(self, connection, response)

    def close(self) -> None:
        """Let go of the kept connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _begin(self, request: Request) -> tuple[Connection, Response]:
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            connection = kept or self._connect()
            try:
                connection.sock.settimeout(request.patience)
                self._write(connection, request)
                self._await(connection)
                return connection, connection.response()
            except OSError as error:
                connection.close()
                if kept is not None and request.repeatable:
                    continue
                raise self._lost(error) from None
            except BaseException:
                connection.close()
                raise

    def _await(self, connection: Connection) -> None:
        """Notify whoever looks on when an answer does not begin soon; it is still waited for."""
        if self._waiting is None:
            return
        ready = select.poll()
        ready.register(connection.sock, select.POLLIN)
        if not ready.poll(SLOW_SECONDS * 1000):
            self._waiting()

    def _write(self, connection: Connection, request: Request) -> None:
        head = f"{request.method} {self._base}{request.target} HTTP/1.1\r\n{self._headers}{self._renewed()}"
        body = request.body
        if body is not None:
            length = body.length if isinstance(body, Body) else len(body)
            head += _head_lines({"Content-Type": request.content_type, "Content-Length": str(length)})
        elif request.method not in ("GET", "HEAD", "DELETE"):
            head += "Content-Length: 0\r\n"
        connection.send(f"{head}\r\n".encode("latin-1"), body.chunks() if isinstance(body, Body) else body)

    def _renewed(self) -> str:
        """What a sign-in adds to the head: a token that is good now."""
        if self._access.sign_in is None:
            return ""
        from .oidc.sign_ins import current

        return _head_lines({"Authorization": f"Bearer {current(self._access).token}"})

    def _connect(self) -> Connection:
        def reach(seconds: float) -> socket.socket:
            return socket.create_connection((self._host, self._port), timeout=seconds)

        def greet(seconds: float) -> None:
            sock.settimeout(seconds)
            sock.do_handshake()  # type: ignore[attr-defined]

        try:
            sock = self._patiently(reach)
        except OSError as error:
            raise Unreachable(f"{self.url} cannot be reached: {_why(error)}") from None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE:
                if hasattr(socket, name):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            if self._secure:
                sock = self._context().wrap_socket(sock, server_hostname=self._host, do_handshake_on_connect=False)
                self._patiently(greet)
        except OSError as error:
            sock.close()
            plain = type(error).__name__ == "SSLError"
            raise Unreachable(f"{self.url} cannot be reached: {NO_TLS if plain else _why(error)}") from None
        return Connection(sock)

    def _patiently(self, attempt: Callable[[float], T]) -> T:
        """Attempt something that can be gone on with; notify whoever looks on when it takes long."""
        if self._waiting is None:
            return attempt(_CONNECT_TIMEOUT)
        try:
            return attempt(SLOW_SECONDS)
        except TimeoutError:
            self._waiting()
            return attempt(_CONNECT_TIMEOUT - SLOW_SECONDS)

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            import ssl

            self._tls = ssl.create_default_context()
            if self._ca:
                self._tls.load_verify_locations(cadata=self._ca.decode())
        return self._tls

    def _give_back(self, connection: Connection, response: Response) -> None:
        if not response.complete or not response.reusable:
            connection.close()
            return
        with self._lock:
            self._idle.append(connection)

    def _lost(self, error: BaseException) -> Unavailable:
        return Unavailable(f"{self.url} stopped answering: {_why(error)}")


class AnswerStream:
    """An answer that is read as it comes."""

    def __init__(self, transport: Transport, connection: Connection, response: Response) -> None:
        self._transport, self._connection, self._response = transport, connection, response
        self.status, self.headers = response.status, response.headers

    def __enter__(self) -> AnswerStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self.read():
            yield chunk

    def read(self, size: int = 1 << 16) -> bytes:
        """What there is, at most `size` bytes; empty at the end. Raises Unavailable if that is not its true end.

        Raises TimeoutError after what `limit` set; the stream is then of no more use.
        """
        try:
            return self._response.read1(size)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:
            # ValueError: closed by another thread in the middle of a read.
            raise self._transport._lost(error) from None

    def limit(self, seconds: float | None) -> None:
        """How long a `read` may wait."""
        self._connection.sock.settimeout(seconds)

    def answer(self) -> Answer:
        """The whole rest, for an answer that turned out to be an error."""
        return Answer(self.status, self.headers, b"".join(self))

    def close(self) -> None:
        """Let go; the connection is kept if the answer was read to its end."""
        self._transport._give_back(self._connection, self._response)


def _head_lines(headers: dict[str, str]) -> str:
    for name, value in headers.items():
        if "\r" in value or "\n" in value or not value.isascii():
            raise Misconfigured(f"the {name} for the server holds characters that no header may hold; is it cut off?")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def _why(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time; is the server busy, or the network down?"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; is the server running, and the address right?"
    if isinstance(error, ConnectionResetError):
        return "it hung up at once; is the server running, and the address right?"
    if isinstance(error, socket.gaierror):
        return "there is no machine of that name; check the address"
    if type(error).__name__ == "SSLCertVerificationError":
        return not_trusted(str(getattr(error, "verify_message", error)))
    return str(error) or type(error).__name__


def not_trusted(why: str) -> str:
    """What to do about a certificate that nobody we know vouches for."""
    return (
        f"its certificate is not trusted ({why}); sign in with `isthmus login --ca-file FILE` or set ISTHMUS_CA_FILE: "
        "a server that made its own certificate keeps the file as tls/ca.pem in its data folder"
    )
