"""A real server for the tests: uvicorn in a thread of its own, over SQLite in a temporary folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import uvicorn

from isthmus.api.app import create_app
from isthmus.api.context import Context
from isthmus.identity import Authenticator
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import KINDS
from isthmus.resources.tokens import new_secret
from isthmus.storage.directory import DirectoryBlobs
from isthmus.store.base import Key, Part, Record, Store
from isthmus.store.opening import open_store

T = TypeVar("T")
ADMINS = "isthmus-system"


class NoLogs:
    """No job of these tests has any output."""

    async def read(self, *_: Any) -> bytes:
        return b""

    async def size(self, *_: Any) -> int:
        return 0

    async def wait(self, *_: Any) -> None:
        await asyncio.sleep(0.05)


class Platform:
    """A server, and the store behind it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.store: Store
        self.context: Context
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)
        self._server: uvicorn.Server

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)
        if self._failure:
            raise self._failure

    def stop(self) -> None:
        self.context.lifelines.closed or self._loop.call_soon_threadsafe(self.context.lifelines.close)
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive(), "the server did not stop"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def create(self, kind: str, name: str, namespace: str = "", **fields: Any) -> Record:
        """Put an object into the store, as reconcilers do."""
        metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **fields.pop("metadata", {})}
        body = {"kind": kind, "apiVersion": KINDS[kind].api_version, "metadata": metadata, **fields}
        return self.run(self.store.create(KINDS[kind], validate(KINDS[kind], body)))

    def set_status(self, kind: str, name: str, namespace: str = "", **status: Any) -> Record:
        """Observe something, as reconcilers do."""
        record = self.run(self.store.get(Key(kind, namespace, name)))
        new = {**record.obj, "status": {**record.obj.get("status", {}), **status}}
        return self.run(self.store.update(KINDS[kind], new, Part.STATUS))

    def token(self, user: str, role: str | None, namespace: str = ADMINS, **spec: Any) -> str:
        """A credential that works."""
        name, secret, digest = new_secret()
        given = {"user": user, "sha256": digest, **({"role": role} if role else {}), **spec}
        record = self.create("Token", name, namespace, spec=given)
        self.run(self.context.authenticator.caught_up("Token", record.version))
        return secret

    def tenant(self, name: str, **spec: Any) -> None:
        record = self.create("Tenant", name, spec=spec)
        self.run(self.context.authenticator.caught_up("Tenant", record.version))

    def client(self, token: str | None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        self.store = await open_store(self.folder / "store.db")
        authenticator = Authenticator(self.store)
        await authenticator.start()
        self.context = Context(self.store, authenticator, DirectoryBlobs(self.folder / "blobs"), NoLogs())
        config = uvicorn.Config(
            create_app(self.context), host="127.0.0.1", port=0, log_level="warning", access_log=False
        )
        self._server = uvicorn.Server(config)
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.005)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        await serving
        await authenticator.close()
        await self.store.close()


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A server with the tenants `physics` and `chemistry` and a site."""
    made = Platform(tmp_path_factory.mktemp("platform"))
    made.start()
    made.tenant("default")
    made.tenant("physics", members=[{"user": "ada", "role": "member"}])
    made.tenant("chemistry")
    made.create("Site", "here", spec={"driver": "local"})
    yield made
    made.stop()


@pytest.fixture(scope="module")
def admin(platform: Platform) -> Iterator[httpx.Client]:
    with platform.client(platform.token("root", "admin")) as client:
        yield client


@pytest.fixture(scope="module")
def member(platform: Platform) -> Iterator[httpx.Client]:
    with platform.client(platform.token("ada", "member", "physics")) as client:
        yield client


@pytest.fixture(scope="module")
def viewer(platform: Platform) -> Iterator[httpx.Client]:
    with platform.client(platform.token("eve", "viewer", "physics")) as client:
        yield client


@pytest.fixture(scope="module")
def tenant_admin(platform: Platform) -> Iterator[httpx.Client]:
    with platform.client(platform.token("max", "admin", "physics")) as client:
        yield client


@pytest.fixture(scope="module")
def stranger(platform: Platform) -> Iterator[httpx.Client]:
    """An admin of another tenant."""
    with platform.client(platform.token("mallory", "admin", "chemistry")) as client:
        yield client
