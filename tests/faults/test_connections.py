"""Clients that say nothing, say too much, say nonsense or never read: others are served, memory stays bounded."""

from __future__ import annotations

import contextlib
import json
import resource
import selectors
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from typing import cast

import pytest

from isthmus.testing.servers import ServerProcess, eventually

from .conftest import ask, memory_of

pytestmark = pytest.mark.real

IDLE = 2000
FOLLOWERS = 1500
GET = b"GET /version HTTP/1.1\r\nHost: a\r\n"
SMUGGLED = [
    GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET + b"\r\n",
    GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + GET + b"\r\n",
    GET + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    GET + b"Content-Length: -1\r\n\r\n",
    GET + b"Content-Length: 99999999999999999999999\r\n\r\n",
    b"GET /version HTTP/1.1\nHost: a\n\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x00\x01\x02 garbage\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT evil:80 HTTP/1.1\r\nHost: evil\r\n\r\n",
]


@pytest.fixture(autouse=True)
def many_files() -> None:
    """This process needs as many descriptors as it opens connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def connections(server: ServerProcess, count: int) -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection(("127.0.0.1", server.port), timeout=30))
        yield opened
    finally:
        for one in opened:
            one.close()


def exchange(server: ServerProcess, raw: bytes) -> bytes:
    """What comes back until the server hangs up or says no more."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=2) as connection:
        connection.sendall(raw)
        found = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            while piece := connection.recv(65536):
                found += piece
        return found


@pytest.mark.parametrize("raw", SMUGGLED)
def test_a_request_that_can_be_read_in_two_ways_is_refused_once(server: ServerProcess, raw: bytes) -> None:
    found = exchange(server, raw)
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "start",
    [b"GET /", b"GET /version HTTP/1.1\r\nHost: a\r\nX: ", b"GET /version HTTP/1.1\r\n"],
    ids=["address", "header", "headers"],
)
def test_a_request_without_end_is_cut_off(server: ServerProcess, start: bytes) -> None:
    before = memory_of(server)
    piece = b"a: b\r\n" * 10_000 if start.endswith(b"\r\n") else b"a" * 60_000
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(start)
        with pytest.raises(ConnectionError):
            send_for_ever(connection, piece)
    assert memory_of(server) < before + 20
    assert server.ready()


def send_for_ever(connection: socket.socket, piece: bytes) -> None:
    for _ in range(1000):
        connection.sendall(piece)


def test_an_endless_body_of_a_stranger_is_not_kept(server: ServerProcess) -> None:
    before = memory_of(server)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(f"POST {server.jobs()} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError, TimeoutError):
            for _ in range(100):
                connection.sendall(b"100000\r\n" + b"a" * 0x100000 + b"\r\n")
    assert memory_of(server) < before + 60


def test_thousands_of_silent_connections_keep_nobody_else_out(server: ServerProcess) -> None:
    before = memory_of(server)
    with connections(server, IDLE) as idle:
        for one in idle[::2]:
            one.sendall(b"GET /version HT")  # half of them begin and stop
        assert ask(server, "GET", "/version").code == 200
        server.submit("among-the-silent")
        assert server.finished("among-the-silent")["phase"] == "Succeeded"
        assert memory_of(server) < before + 150


def test_a_greeting_of_tls_that_goes_nowhere_disturbs_nobody(server: ServerProcess) -> None:
    assert exchange(server, b"\x16\x03\x01\x00\x05hello") == b""
    with connections(server, 50) as opened:
        for one in opened:
            one.sendall(b"\x16\x03\x01")
        assert ask(server, "GET", "/version").code == 200


def test_old_tls_is_refused_and_new_is_not(server: ServerProcess) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", server.port)) as plain, context.wrap_socket(plain) as secure:
        assert secure.version() in ("TLSv1.2", "TLSv1.3")
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
        input=b"", capture_output=True, check=False,
    )  # fmt: skip
    assert b"Cipher is (NONE)" in done.stdout


def follow(server: ServerProcess, one: socket.socket, path: str, token: str = "") -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token or server.token}\r\n\r\n"
    one.sendall(head.encode())


def read_all(opened: list[socket.socket], seconds: float) -> list[bytes]:
    """What each connection gets until its answer ends (an empty chunk)."""
    chosen = selectors.DefaultSelector()
    found: dict[socket.socket, list[bytes]] = {one: [] for one in opened}
    tails: dict[socket.socket, bytes] = dict.fromkeys(opened, b"")
    for one in opened:
        one.setblocking(False)
        chosen.register(one, selectors.EVENT_READ)
    left, deadline = len(opened), time.monotonic() + seconds
    while left:
        assert time.monotonic() < deadline, f"{left} were not served to the end"
        for key, _ in chosen.select(1):
            one = cast("socket.socket", key.fileobj)
            piece = one.recv(65536)
            found[one].append(piece)
            tails[one] = (tails[one] + piece)[-5:]
            if not piece or tails[one] == b"0\r\n\r\n":
                chosen.unregister(one)
                left -= 1
    chosen.close()
    return [b"".join(found[one]) for one in opened]


def body_of(raw: bytes) -> bytes:
    """The body of a chunked answer."""
    rest, body = raw.partition(b"\r\n\r\n")[2], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


def test_thousands_follow_one_log_and_each_gets_every_byte(server: ServerProcess) -> None:
    gate = "while [ ! -e go ]; do sleep 0.1; done"
    server.submit("followed", script=f"echo first; {gate}; for i in 1 2 3; do echo line $i; sleep 0.2; done; echo last")
    eventually(lambda: server.output("followed") == "first\n")
    before = memory_of(server)
    with connections(server, FOLLOWERS) as followers:
        for one in followers:
            follow(server, one, f"{server.jobs()}/followed/log?follow=true")
        eventually(lambda: ask(server, "GET", "/version").code == 200)
        during = memory_of(server)
        folder = next(server.data.glob("sites/local/runs/*/stdout.log")).parent
        run = max(server.data.glob("sites/local/runs/*"), key=lambda run: run.stat().st_mtime)
        assert folder.exists()
        (run / "work/go").touch()
        answers = read_all(followers, 60)
        assert {body_of(answer) for answer in answers} == {b"first\nline 1\nline 2\nline 3\nlast\n"}
        assert max(during, memory_of(server)) < before + 250
    assert server.finished("followed")["phase"] == "Succeeded"


def test_who_does_not_read_a_log_costs_little_and_holds_up_nobody(server: ServerProcess) -> None:
    size = 200 * 2**20
    server.submit("long-log", script=f"head -c {size} /dev/zero | tr '\\0' x; echo; echo end")
    assert server.finished("long-log")["phase"] == "Succeeded"
    before = memory_of(server)
    with connections(server, 30) as lazy:
        for one in lazy:
            follow(server, one, f"{server.jobs()}/long-log/log?follow=true")
        assert server.output("long-log", query="?tailLines=1") == "end\n"
        whole = ask(server, "GET", f"{server.jobs()}/long-log/log?follow=true")
        assert len(whole.body) == size + 5
        assert memory_of(server) < before + 100


def test_who_does_not_read_a_watch_costs_little_and_is_told_to_list_again(server: ServerProcess) -> None:
    server.submit("watched", intent="Hold")
    with connections(server, 20) as lazy:
        for one in lazy:
            follow(server, one, f"{server.jobs()}?watch=true")
            one.settimeout(30)
            assert one.recv(12) == b"HTTP/1.1 200"
        before = memory_of(server)
        note = "n" * 100_000
        for number in range(800):
            ask(server, "PATCH", f"{server.jobs()}/watched", {"metadata": {"annotations": {"note": f"{number}{note}"}}})
        # 80 MB of changes, for each of 20 watchers: what waits is shared, and nobody may wait for more than 64.
        assert memory_of(server) < before + 250
        assert b"ERROR" in last_line(lazy[0])
    ask(server, "DELETE", f"{server.jobs()}/watched")


def last_line(one: socket.socket) -> bytes:
    """The last line of a watch whose reader begins to read late."""
    tail = b""
    deadline = time.monotonic() + 30
    while b"ERROR" not in tail and time.monotonic() < deadline:
        piece = one.recv(1 << 20)
        if not piece:
            break
        tail = (tail + piece)[-2000:]
    return tail


def test_sparse_logs_do_not_keep_the_server_busy(server: ServerProcess) -> None:
    server.submit(
        "sparse", script="truncate -s 1000T /proc/self/fd/1 || python3 -c 'import os; os.ftruncate(1, 1<<50)'"
    )
    assert server.finished("sparse")["phase"] in ("Succeeded", "Failed")
    answer = ask(server, "GET", f"{server.jobs()}/sparse/log?tailLines=5&limitBytes=10")
    assert answer.code == 200
    assert len(answer.body) == 10


def test_a_metric_tells_nothing_to_strangers(server: ServerProcess) -> None:
    assert ask(server, "GET", "/metrics", token="").code == 401
    assert json.loads(ask(server, "GET", "/metrics", token="").body)["kind"] == "Status"
