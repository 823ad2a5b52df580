"""An instance from `isthmus ide` to its page: who gets in, who does not, and what passes between both."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from isthmus.testing.servers import eventually
from tests.cli.conftest import Call, Server

pytestmark = pytest.mark.real

PROGRAM = r"""#!/usr/bin/env python3
import base64, hashlib, json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path.startswith("/bad"):
            self.wfile.write(b"HTTP/9 what\r\n\r\n"); self.close_connection = True; return
        if self.path == "/two-lengths":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"); return
        if self.path == "/ws": return self.echo()
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size).decode()
        said = json.dumps({"path": self.path, "headers": self.headers.items(), "body": body}).encode()
        if self.path == "/big": said = b"x" * 50_000_000
        self.send_response(200)
        self.send_header("Set-Cookie", "mine=1; Domain=localhost; Path=/")
        self.send_header("Set-Cookie", "isthmus-instance=stolen")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
    do_POST = do_GET
    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8: self.close_connection = True; return
            size = head[1] & 127
            if size == 126: size = int.from_bytes(self.rfile.read(2))
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([head[0]]) + (bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2)) + data)
    def log_message(self, *_): pass
ThreadingHTTPServer(("127.0.0.1", 9000), Handler).serve_forever()
"""


class Web(NamedTuple):
    """The server, as a browser of anybody reaches it."""

    server: Server

    def __call__(
        self, host: str, path: str = "/", *, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[HTTPResponse, bytes]:
        port = urlsplit(self.server.url).port
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        named = {"Host": f"{host}:{port}", **{key.replace("_", "-"): value for key, value in headers.items()}}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content


def host_of(name: str, tenant: str = "default") -> str:
    return f"{name}--{tenant}.instances.localhost"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def web(server: Server) -> Web:
    return Web(server)


@pytest.fixture
def echo(isthmus: Call) -> Iterator[str]:
    """An instance of a program that says what it was sent."""
    spec = {"script": PROGRAM, "port": 9000}
    manifest = json.dumps(
        {"apiVersion": "isthmus.dev/v1", "kind": "Template", "metadata": {"name": "echo"}, "spec": spec}
    )
    assert isthmus("apply", "-f", "-", stdin=None, input=manifest).returncode == 0
    done = isthmus("ide", "echo", "--name", "echo-one")
    assert done.returncode == 0, done.stderr
    yield "echo-one"
    isthmus("delete", "instance", "echo-one")


def test_the_whole_way(isthmus: Call, server: Server, web: Web) -> None:
    assert {"http", "terminal"} <= set(isthmus("templates", "-o", "name").stdout.replace("template/", "").split())
    done = isthmus("ide", "http", "--name", "demo")
    assert (done.returncode, done.stdout.strip()) == (0, f"http://{host_of('demo')}:{urlsplit(server.url).port}/")
    assert isthmus("ide", "http", "--name", "demo").stdout == done.stdout, "it is there already"
    assert isthmus("ide", "terminal", "--name", "demo").returncode == 6
    assert isthmus("ide", "nothing").returncode == 3
    for name in ("a.b", "a--b", "a" * 60):
        assert isthmus("ide", "http", "--name", name).returncode == 2
    (listed,) = json.loads(isthmus("instances", "-o", "json").stdout)["items"]
    assert (listed["status"]["phase"], listed["status"]["url"]) == ("Ready", done.stdout.strip())
    answer, page = web(host_of("demo"), **bearer(server.token))
    assert (answer.status, b"Directory listing" in page) == (200, True)
    eventually(lambda: _status(isthmus, "demo").get("lastUsedAt"))
    assert isthmus("instance", "stop", "demo").returncode == 0
    eventually(lambda: _status(isthmus, "demo")["phase"] == "Stopped" or None)
    answer, page = web(host_of("demo"), **bearer(server.token))
    assert (answer.status, b"isthmus instance start demo" in page) == (503, True)
    assert isthmus("instance", "start", "demo").stdout == done.stdout
    assert isthmus("instance", "extend", "demo", "50h").returncode == 0
    eventually(lambda: _status(isthmus, "demo").get("expiresAt", "") > _status(isthmus, "demo")["startedAt"] or None)
    assert isthmus("delete", "instance", "demo").returncode == 0
    eventually(lambda: "demo-2" not in isthmus("jobs", "-o", "name").stdout or None)


def test_a_terminal(isthmus: Call, server: Server, web: Web) -> None:
    assert isthmus("ide", "terminal", "--name", "term").returncode == 0
    typed, _ = web(host_of("term"), "/input", method="POST", body=b"echo $((6*7)); exit\r", **bearer(server.token))
    assert typed.status == 204
    eventually(lambda: _status(isthmus, "term")["phase"] in ("Stopped", "Failed") or None)
    isthmus("delete", "instance", "term")


def test_what_passes_between_browser_and_program(server: Server, web: Web, echo: str) -> None:
    mine = bearer(server.token)
    answer, content = web(host_of(echo), "/a%2Fb?x=1&y=%20", Cookie="isthmus-instance=zz; theirs=2", **mine)
    said: dict[str, Any] = json.loads(content)
    assert said["path"] == "/a%2Fb?x=1&y=%20"
    headers = {key.lower(): value for key, value in said["headers"]}
    assert (headers["cookie"], "authorization" in headers) == ("theirs=2", False)
    assert server.token not in content.decode()
    assert answer.headers.get_all("Set-Cookie") == ["mine=1; Path=/"]
    _, content = web(host_of(echo), "/", method="POST", body=b"GET /stolen HTTP/1.1\r\n\r\n", **mine)
    assert json.loads(content)["body"] == "GET /stolen HTTP/1.1\r\n\r\n"
    assert len(web(host_of(echo), "/big", **mine)[1]) == 50_000_000
    for path in ("/bad", "/two-lengths"):
        assert web(host_of(echo), path, **mine)[0].status == 502
    asyncio.run(_talk(server, echo))


async def _talk(server: Server, echo: str) -> None:
    port = urlsplit(server.url).port
    host = f"{host_of(echo)}:{port}"
    there: dict[str, Any] = {"uri": f"ws://{host}/ws", "host": "127.0.0.1", "port": port, "compression": None}
    mine, origin = bearer(server.token), f"http://{host}"
    async with connect(**there, additional_headers=mine, origin=origin) as socket:
        for message in ("hello", b"\0\1\2", "x" * 5000):
            await socket.send(message)
            assert await socket.recv() == message
    foreign = f"http://{host_of('other')}:{port}"
    for bad in ({"origin": origin}, {"additional_headers": mine, "origin": foreign}):
        with pytest.raises(InvalidStatus) as refused:
            await connect(**there, **bad)
        assert refused.value.response.status_code in (401, 403)


def test_nobody_else_gets_in_and_who_is_invited_does(isthmus: Call, server: Server, web: Web, echo: str) -> None:
    isthmus("tenants", "create", "others")
    eve = isthmus("token", "create", "eve").stdout.strip()
    admin = isthmus("token", "create", "ann", "--role", "admin").stdout.strip()
    elsewhere = isthmus("token", "create", "admin", "--role", "admin", "-n", "others").stdout.strip()
    refusals = set()
    for token in (eve, admin, elsewhere):
        for host in (host_of(echo), host_of("guessed"), host_of(echo, "others"), host_of("x", "no-such-tenant")):
            answer, page = web(host, **bearer(token))
            refusals.add((answer.status, page))
    assert {status for status, _ in refusals} == {403}
    assert len(refusals) == 1, "nobody learns what exists"
    assert web(host_of(echo), **bearer("ist_guessed_" + "x" * 43))[0].status == 401
    assert web("nothing.instances.localhost", **bearer(server.token))[0].status == 404
    assert web(host_of(echo), "/apis", Accept="text/html")[0].status == 303
    assert web(host_of(echo), "/console/", **bearer(eve))[0].status == 403, "the console is not at hosts of instances"
    assert isthmus("instance", "share", echo, "--with", "eve").returncode == 0
    assert web(host_of(echo), **bearer(eve))[0].status == 200
    assert web(host_of(echo), **bearer(admin))[0].status == 403
    isthmus("instance", "unshare", echo, "--with", "eve")
    assert web(host_of(echo), **bearer(eve))[0].status == 403


def test_a_browser_is_handed_over_once_and_only_while_it_is_signed_in(
    isthmus: Call, server: Server, web: Web, echo: str
) -> None:
    session, code = _signed_in(server, web)
    first, _ = web(host_of(echo), "/page?q=1", Accept="text/html")
    asked = urlsplit(first.headers["Location"])
    assert (first.status, f"{asked.scheme}://{asked.netloc}") == (303, server.url)
    given, _ = web("127.0.0.1", f"{asked.path}?{asked.query}", Accept="text/html", Cookie=session)
    ticket = urlsplit(given.headers["Location"])
    assert (given.status, ticket.hostname) == (303, host_of(echo))
    entered, _ = web(host_of(echo), f"{ticket.path}?{ticket.query}")
    assert (entered.status, entered.headers["Location"]) == (303, "/page?q=1")
    line = entered.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(line.split("; "))
    assert "domain" not in line.lower()
    cookie = line.partition(";")[0]
    again, _ = web(host_of(echo), f"{ticket.path}?{ticket.query}", Accept="text/html")
    assert ("Set-Cookie" in again.headers, again.status) == (False, 303), "a ticket is for one use"
    answer, content = web(host_of(echo), Cookie=cookie)
    assert (answer.status, cookie.partition("=")[2] in content.decode()) == (200, False)
    foreign = f"http://{host_of('evil')}:{urlsplit(server.url).port}"
    for other in (foreign, "null", "http://["):
        assert web(host_of(echo), "/", method="POST", body=b"x", Cookie=cookie, Origin=other)[0].status == 403
    isthmus("ide", "http", "--name", "second")
    assert web(host_of("second"), Cookie=cookie)[0].status == 403, "a cookie is for one instance"
    isthmus("delete", "instance", "second")
    for where in ("//evil.example", "https://evil.example", "/\\evil.example"):
        spoiled = urlencode({"ticket": "x", "path": where})
        assert "evil" not in (web(host_of(echo), f"/.isthmus/enter?{spoiled}")[0].headers.get("Location") or "")
    signed = "application/x-www-form-urlencoded"
    out, _ = web("127.0.0.1", "/console/sign-out", method="POST", body=urlencode({"csrf": code}).encode(),
                 Cookie=session, Content_Type=signed)  # fmt: skip
    assert out.status == 303
    assert web(host_of(echo), Cookie=cookie)[0].status == 401, "who signed out is out"


def _signed_in(server: Server, web: Web) -> tuple[str, str]:
    """The cookie of a session of the console, and the code of its forms."""
    made, content = web("127.0.0.1", "/console/tickets", method="POST", **bearer(server.token))
    assert made.status == 201
    path = json.loads(content)["path"]
    asked, page = web("127.0.0.1", path, Accept="text/html")
    visit = asked.headers["Set-Cookie"].partition(";")[0]
    fields = {"ticket": parse_qs(urlsplit(path).query)["ticket"][0], "csrf": _code(page)}
    done, _ = web("127.0.0.1", "/console/enter", method="POST", body=urlencode(fields).encode(), Cookie=visit,
                  Content_Type="application/x-www-form-urlencoded")  # fmt: skip
    assert done.status == 303
    session = next(line for line in done.headers.get_all("Set-Cookie") or () if "-session-" in line).partition(";")[0]
    return session, _code(web("127.0.0.1", "/console/", Accept="text/html", Cookie=session)[1])


def _code(page: bytes) -> str:
    found = re.search(rb'name="csrf"\s+value="([0-9a-f]+)"', page)
    assert found is not None
    return found[1].decode()


def _status(isthmus: Call, name: str) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(isthmus("get", "instance", name, "-o", "json").stdout)["status"]
    return status
