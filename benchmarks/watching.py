"""How long after a change 200 watchers know of it."""

from __future__ import annotations

import json
import re
import selectors
import socket
import statistics
import threading
import time
from urllib.parse import urlsplit

from .reads import JOBS
from .report import Figure, Section
from .servers import Server, isthmus

WATCHERS, CHANGES, PAUSE = 200, 200, 0.02
ADDED = re.compile(rb'"type":"ADDED","object":{[^\n]*?"name":"(w-\d+)"')


def run(seconds: int) -> Section:
    section = Section(
        "Watching",
        f"{WATCHERS} watchers over HTTP; {CHANGES} jobs are created one after the other, {1 / PAUSE:.0f} a second at "
        "most. The time is from sending the creating request to the line's arrival at a watcher: it includes "
        "the whole request with its commit. All watchers are sockets of one client on the same two cores.",
    )
    with isthmus() as server:
        delays = _measure(server)
    p50, p99 = statistics.median(delays), delays[int(len(delays) * 0.99)]
    reported = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(delays):,} deliveries"
    section.figures.append(Figure("change to watcher", reported, "", None, "p99 < 20 ms", p99 < 20))
    return section


def _measure(server: Server) -> list[float]:
    ready = selectors.EpollSelector()
    for _ in range(WATCHERS):
        watcher = _open(server, "GET", f"{JOBS}?watch=1")
        while b"\r\n\r\n" not in watcher.recv(65536):
            pass
        watcher.setblocking(False)
        ready.register(watcher, selectors.EVENT_READ)
    sent: dict[str, float] = {}
    creating = threading.Thread(target=_create, args=(server, sent))
    creating.start()
    # Only noted while it runs, and read afterwards, so that reading one line does not hold up the next.
    noted: dict[int, list[tuple[float, bytes]]] = {}
    quiet_since = time.monotonic()
    while creating.is_alive() or time.monotonic() - quiet_since < 2:
        for key, _ in ready.select(0.2):
            assert isinstance(key.fileobj, socket.socket)
            noted.setdefault(key.fd, []).append((time.perf_counter(), key.fileobj.recv(1 << 20)))
            quiet_since = time.monotonic()
    creating.join()
    for key in list(ready.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    arrived = [found for pieces in noted.values() for found in _lines(pieces)]
    if len(arrived) != WATCHERS * CHANGES:
        raise RuntimeError(f"{len(arrived)} deliveries instead of {WATCHERS * CHANGES}")
    return sorted((moment - sent[name]) * 1000 for moment, name in arrived)


def _lines(pieces: list[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """The names in the lines of one watcher, each with the moment its line was complete."""
    found, rest = [], b""
    for moment, data in pieces:
        *lines, rest = (rest + data).split(b"\n")
        found += [(moment, match[1].decode()) for line in lines if (match := ADDED.search(line))]
    return found


def _create(server: Server, sent: dict[str, float]) -> None:
    connection = None
    for number in range(CHANGES):
        name = f"w-{number}"
        job = {"kind": "Job", "metadata": {"name": name}, "spec": {"command": ["true"], "intent": "Hold"}}
        body = json.dumps(job).encode()
        sent[name] = time.perf_counter()
        connection = _open(server, "POST", JOBS, body, connection)
        connection.recv(65536)
        time.sleep(PAUSE)
    if connection is not None:
        connection.close()


def _open(
    server: Server, method: str, path: str, body: bytes = b"", connection: socket.socket | None = None
) -> socket.socket:
    place = urlsplit(server.url)
    if connection is None:
        connection = socket.create_connection((place.hostname, place.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = f"{method} {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {server.token}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection
