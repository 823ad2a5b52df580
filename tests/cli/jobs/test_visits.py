"""`isthmus exec` and `isthmus port-forward`: as the job's owner, and as everybody else."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed

from isthmus.cli.jobs.port_forward import ports_of
from isthmus.client.job_sockets import open_visit
from isthmus.client.kubeconfigs import Access
from isthmus.errors import Forbidden, Invalid, IsthmusError, NotFound, Unauthenticated
from isthmus.testing.servers import eventually, free_port
from tests.cli.conftest import Call, Server

WEB = "import http.server; print('up', flush=True); http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)"


@pytest.fixture
def job(isthmus: Call) -> Iterator[str]:
    name = isthmus("run", "-d", "--", "python3", "-uc", WEB).stdout.strip()
    eventually(lambda: "up" in isthmus("logs", name).stdout or None)
    yield name
    isthmus("cancel", name)


@pytest.mark.real
def test_the_owner_gets_in(isthmus: Call, job: str, environment: dict[str, str]) -> None:
    done = isthmus("exec", job, "--", "sh", "-c", "pwd; echo no >&2; exit 4")
    assert (done.returncode, done.stdout, done.stderr) == (4, "/job\n", "no\n")
    counted = isthmus("exec", "-i", job, "--", "wc", "-c", stdin=None, input="x" * 200_000)
    assert (counted.returncode, counted.stdout.strip()) == (0, "200000")
    assert isthmus("exec", job, "--", "sh", "-c", "kill -KILL $$").returncode == 137
    assert isthmus("exec", job, "--", "no-such-program").returncode == 127
    assert isthmus("exec", job).returncode == 2
    assert isthmus("exec", "nothing", "--", "true").returncode == 3
    assert isthmus("port-forward", job, "80:x").returncode == 2
    port = free_port()
    words = [sys.executable, "-m", "isthmus.cli", "port-forward", job, f"{port}:8000"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as forwarding:
        assert forwarding.stdout is not None
        assert f"127.0.0.1:{port} leads to port 8000" in forwarding.stdout.readline()
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as page:
                assert b"Directory listing" in page.read()
        forwarding.terminate()


@pytest.mark.real
def test_nobody_else_does(isthmus: Call, server: Server, job: str) -> None:
    isthmus("tenants", "create", "others")
    tokens = {
        "member": isthmus("token", "create", "eve").stdout.strip(),
        "viewer": isthmus("token", "create", "vic", "--role", "viewer").stdout.strip(),
        "tenant admin": isthmus("token", "create", "ann", "--role", "admin").stdout.strip(),
        "elsewhere": isthmus("token", "create", "eve", "--role", "admin", "-n", "others").stdout.strip(),
        "guessed": "ist_guessed_" + "x" * 43,
    }
    expected = dict.fromkeys(tokens, Forbidden) | {"guessed": Unauthenticated}
    for who, token in tokens.items():
        for part, query in (("exec", [("command", "true")]), ("portforward", [("port", "8000")])):
            refused = _refusal(Access(server.url, token), job, part, query)
            assert isinstance(refused, expected[who]), (who, refused)
            missing = _refusal(Access(server.url, token), "no-such-job", part, query)
            if who not in ("member", "tenant admin"):  # who may list jobs knows anyhow
                assert type(missing) is type(refused)
    own = Access(server.url, server.token)
    for bad in ([], [("port", "0")], [("port", "99999")], [("port", "x")], [("port", "8" * 5000)]):
        assert isinstance(_refusal(own, job, "portforward", bad), Invalid)
    for bad in ([], [("command", "")], [("command", "a\0b")], [("command", "ls"), ("rows", "3")]):
        assert isinstance(_refusal(own, job, "exec", bad), Invalid)
    assert isinstance(_refusal(own, "no-such-job", "exec", [("command", "true")]), NotFound)


@pytest.mark.real
def test_a_connection_ends_with_its_token(isthmus: Call, server: Server) -> None:
    made = json.loads(isthmus("token", "create", "ada", "-o", "json").stdout)
    token, name = made["token"], made["name"]
    job = isthmus("run", "-d", "--token", token, "--", "sleep", "1000").stdout.strip()
    eventually(lambda: "Running" in isthmus("jobs").stdout or None)

    async def visit() -> None:
        query = [("command", "cat")]
        async with await open_visit(Access(server.url, token), "default", job, "exec", query) as connection:
            await connection.send(b"\0hello")
            assert await connection.recv() == b"\1hello"
            await asyncio.to_thread(isthmus, "token", "revoke", name)
            with pytest.raises(ConnectionClosed):
                await connection.recv()

    asyncio.run(visit())
    isthmus("cancel", job)


def _refusal(access: Access, job: str, part: str, query: list[tuple[str, str]]) -> IsthmusError:
    async def visit() -> None:
        await (await open_visit(access, "default", job, part, query)).close()

    with pytest.raises(IsthmusError) as refused:
        asyncio.run(visit())
    return refused.value


@pytest.mark.parametrize(
    ("text", "ports"), [("8888", (8888, 8888)), ("80:90", (80, 90)), (":90", (0, 90)), ("0:90", (0, 90))]
)
def test_pairs_of_ports(text: str, ports: tuple[int, int]) -> None:
    assert ports_of(text) == ports


@pytest.mark.parametrize("text", ["", ":", "a:b", "1:2:3", "0", "1:0", "99999", "-1:80", "٣"])
def test_what_is_no_pair_of_ports(text: str) -> None:
    with pytest.raises(Invalid):
        ports_of(text)
