"""Somebody at the console: over HTTP in the test's own event loop, or in a real browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from isthmus.testing.apis import RunningApi, running_api
from isthmus.testing.browsers import chromium
from isthmus.testing.servers import ServerProcess, running_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CODE = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        yield api


class Person:
    """Somebody with a browser that has no script."""

    def __init__(self, api: RunningApi, **options: object) -> None:
        self.api = api
        self.http = httpx.AsyncClient(
            base_url=api.url,
            headers={"Accept": "text/html"},
            timeout=60,
            trust_env=False,
            **options,  # type: ignore[arg-type]
        )
        self.code = ""

    async def sign_in(self, who: str) -> httpx.Response:
        return await self.sign_in_with(self.api.tokens[who])

    async def sign_in_with(self, token: str) -> httpx.Response:
        self.code = code_in((await self.http.get("/console/sign-in")).text)
        answer = await self.http.post("/console/sign-in", data={"csrf": self.code, "token": token})
        if answer.status_code == 303:
            self.code = code_in(await self.see("/"))
        return answer

    async def see(self, path: str, code: int = 200) -> str:
        answer = await self.http.get(f"/console{path}")
        assert answer.status_code == code, answer.text
        return unescape(answer.text)

    async def send(self, path: str, **fields: str) -> httpx.Response:
        return await self.http.post(f"/console{path}", data={"csrf": self.code, **fields})


def code_in(text: str) -> str:
    found = CODE.search(text)
    assert found, text
    return found[1]


@pytest.fixture
async def person(api: RunningApi) -> AsyncIterator[Person]:
    """A member of the tenant, signed in."""
    person = Person(api)
    await person.sign_in("member")
    yield person
    await person.http.aclose()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("console") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser
