"""HTTP answers as servers and proxies frame them, whole and damaged."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isthmus.client.kubeconfigs import Access
from isthmus.client.places import JOBS, place_of
from isthmus.client.requests import Request, get, output, path_of
from isthmus.client.transport import Transport
from isthmus.client.wire import Connection
from isthmus.errors import Misconfigured, NotFound, Unreachable


@contextmanager
def answered(data: bytes, piece: int = 1 << 20) -> Iterator[Connection]:
    """A connection on which these bytes arrive, in pieces, and then the end."""
    ours, theirs = socket.socketpair()

    def write() -> None:
        with theirs:
            for start in range(0, len(data), piece):
                theirs.sendall(data[start : start + piece])

    thread = threading.Thread(target=write)
    thread.start()
    connection = Connection(ours)
    try:
        yield connection
    finally:
        connection.close()
        thread.join()


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;x=y\r\nhello\r\nA\r\n, world!\r\n\r\n0\r\nTrailer: x\r\n\r\n"
)


@pytest.mark.parametrize("piece", [1, 3, 1000])
@pytest.mark.parametrize(
    ("data", "body", "reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (CHUNKED, b"hello, world!\r\n", True),
    ],
)
def test_whole_answers(data: bytes, body: bytes, reusable: bool, piece: int) -> None:
    with answered(data, piece) as connection:
        response = connection.response()
        assert response.read() == body
        assert response.complete
        assert response.reusable is reusable
        assert response.read1() == b""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
        CHUNKED[:-9],
        CHUNKED[:60],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 2xx\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300 + b"\r\n",
    ],
)
def test_damaged_answers_are_never_taken_for_whole(data: bytes) -> None:
    with answered(data) as connection, pytest.raises(ConnectionError):
        connection.response().read()


def test_headers_that_come_twice_are_joined() -> None:
    with answered(b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nContent-Length: 0\r\n\r\n") as connection:
        assert connection.response().headers["a"] == "1, 2"


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:7070", "http://", "http://x:port", ""])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(Misconfigured):
        Transport(Access(url))


def test_a_token_cannot_smuggle_headers() -> None:
    with pytest.raises(Misconfigured, match="Authorization"):
        Transport(Access("http://x", "abc\r\nEvil: 1"))


def test_paths_keep_names_in_their_place() -> None:
    assert path_of(JOBS, "lab", "../x") == "/apis/isthmus.dev/v1/namespaces/lab/jobs/..%2Fx"
    assert get(JOBS, "..", "..").path == "/apis/isthmus.dev/v1/namespaces/%2E%2E/jobs/%2E%2E"
    assert output("lab", "j", "a b/c?d#e").path.endswith("/jobs/j/outputs/a%20b/c%3Fd%23e")
    assert get(place_of("site"), None, "s").path == "/apis/isthmus.dev/v1/sites/s"
    assert Request("GET", "/x", (("labelSelector", "a=b,c"),)).target == "/x?labelSelector=a%3Db%2Cc"


@pytest.mark.parametrize("word", ["Job", "jobs", "ijob", "jobs.isthmus.dev", "JOB"])
def test_what_people_call_a_kind(word: str) -> None:
    assert place_of(word)[:3] == JOBS[:3]


def test_an_unknown_kind_is_told_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match="deviceclasses"):
        place_of("pods")


@pytest.mark.real
def test_certificates_are_verified(tmp_path: Path) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert)]
    words += ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(words, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://localhost:{server.getsockname()[1]}"

        def serve() -> None:
            for _ in range(2):
                plain, _address = server.accept()
                try:
                    with context.wrap_socket(plain, server_side=True) as secure:
                        secure.recv(65_536)
                        secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                except OSError:
                    plain.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(Unreachable, match="certificate is not trusted"):
                Transport(Access(url)).send(Request("GET", "/"))
            assert Transport(Access(url, ca=cert.read_bytes())).send(Request("GET", "/")).body == b"ok"
        finally:
            thread.join()
