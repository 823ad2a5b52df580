"""A real server, a member of its tenant, and somebody who asks for its health all the while."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from isthmus.resources.tokens import new_secret
from isthmus.store.base import Store
from isthmus.store.opening import open_store
from isthmus.store.settings import StoreSettings
from isthmus.testing.postgres import Postgres
from isthmus.testing.servers import GROUP, ServerProcess

SMALL = StoreSettings(piece_bytes=2**20, recent_bytes=2**20, recent_changes=4)
"""Pieces so small that a few objects of the largest size need several, and little in memory."""
Reopen = Callable[[], Awaitable[Store]]

PROMISED = 5.0
"""Seconds in which health is answered, whatever else is going on. The promise is one second on a machine of its own;
the tests share theirs."""


class Prober:
    """Asks for the server's health without a pause, and remembers how long the slowest answer took."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._end = False
        self._reported = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="prober")
        self._slowest = 0.0
        self._answers = 0

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=120, trust_env=False) as client:
            while not self._end:
                begun = time.monotonic()
                client.get("/healthz").raise_for_status()
                with self._reported:
                    self._slowest = max(self._slowest, time.monotonic() - begun)
                    self._answers += 1
                    self._reported.notify_all()
                time.sleep(0.01)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end = True
        self._thread.join()

    @contextmanager
    def always_healthy(self) -> Iterator[None]:
        """Fails if an answer that was asked for during the block took too long."""
        self._wait_for_answers(1)
        with self._reported:
            self._slowest = 0.0
        yield
        self._wait_for_answers(2)  # the first may have been asked for before
        assert self._slowest < PROMISED, f"health took {self._slowest:.1f} s"

    def _wait_for_answers(self, count: int) -> None:
        with self._reported:
            wanted = self._answers + count
            assert self._reported.wait_for(lambda: self._answers >= wanted, timeout=120), "the server does not answer"


@pytest.fixture(scope="module")
def prober(server: ServerProcess) -> Iterator[Prober]:
    """Somebody who asks for the server's health all the while."""
    asking = Prober(server.url)
    asking.start()
    yield asking
    asking.stop()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres(durable=False) as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.real)])
async def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reopen]:
    """Opens the same store, again and again."""
    location: Any = tmp_path / "store.db"
    found = SMALL
    if request.param == "postgres":
        location = request.getfixturevalue("postgres").url
        found = replace(SMALL, schema=f"t_{uuid.uuid4().hex}")
    opened: list[Store] = []

    async def open_() -> Store:
        for store in opened:
            await store.close()
        opened[:] = [await open_store(location, found)]
        return opened[0]

    yield open_
    for store in opened:
        await store.close()


@pytest.fixture(scope="module")
def member(server: ServerProcess) -> Iterator[httpx.Client]:
    """A member of the default tenant, signed in to the console too."""
    token = token_of(server, "member", "default")
    with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
        code = code_in(client.get("/console/sign-in").text)
        assert client.post("/console/sign-in", data={"csrf": code, "token": token}).status_code == 303
        client.headers["X-CSRF"] = code_in(client.get("/console/").text)
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


def token_of(server: ServerProcess, role: str, namespace: str, user: str = "mallory") -> str:
    """A new token of a tenant."""
    name, secret, sha256 = new_secret()
    spec = {"user": user, "role": role, "sha256": sha256}
    body = {"apiVersion": "isthmus.dev/v1", "kind": "Token", "metadata": {"name": name}, "spec": spec}
    server.request(f"{GROUP}/namespaces/{namespace}/tokens", body)
    return secret


def code_in(page: str) -> str:
    """The code of a page's forms."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found, page
    return found[1]
