"""A whole API on a free port of this machine, over a SQLite store in a folder, for tests that speak HTTP to it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from isthmus._kit.sealing import Sealer
from isthmus._kit.sealing import new_key as sealing_key
from isthmus.api.app import create_app
from isthmus.api.context import Context, RequestLimits
from isthmus.console import Console
from isthmus.console.sessions import new_key
from isthmus.engines.base import FilePart, FolderListing, Stream
from isthmus.engines.browsing import list_folder, read_part
from isthmus.identity.audit import noting
from isthmus.identity.audit.audit_log import AuditLog
from isthmus.identity.authenticating import Authenticator
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.resources.frame.validation import validate
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import JOB, TENANT, TOKEN
from isthmus.resources.tenants import SYSTEM_NAMESPACE, Role
from isthmus.resources.tokens import new_secret
from isthmus.server.engine_images import EngineImages
from isthmus.server.plans import StorePlans
from isthmus.storage.directory import DirectoryBlobs
from isthmus.store.base import Key, Part, Record
from isthmus.store.sqlite import SqliteStore
from isthmus.telemetry.updating import Telemetry

from .kubectl import write_kubeconfig

TENANT_NAME = "physics"


class MemoryLogs:
    """Logs that a test writes."""

    def __init__(self) -> None:
        self._data: dict[tuple[str, int, Stream], bytearray] = {}
        self._grown: dict[tuple[str, int, Stream], asyncio.Event] = {}
        self._samples: dict[tuple[str, int], bytearray] = {}
        self.waiting = 0
        """How many followers wait for more just now."""

    def write(self, uid: str, data: bytes, attempt: int = 0, stream: Stream = Stream.STDOUT) -> None:
        """Append to a log, and wake who waits for it."""
        place = (uid, attempt, stream)
        self._data.setdefault(place, bytearray()).extend(data)
        self._grown.pop(place, asyncio.Event()).set()

    async def read(self, job: Job, attempt: int, stream: Stream, offset: int, size: int) -> bytes:
        """Up to `size` bytes."""
        await asyncio.sleep(0)
        return bytes(self._data.get((job.uid, attempt, stream), b"")[offset : offset + size])

    def sample(self, uid: str, data: bytes, attempt: int = 0) -> None:
        """Append to a journal."""
        self._samples.setdefault((uid, attempt), bytearray()).extend(data)

    async def samples(self, job: Job, attempt: int, offset: int, size: int) -> bytes:
        """Part of a journal."""
        return bytes(self._samples.get((job.uid, attempt), b"")[offset : offset + size])

    async def output(self, job: Job, attempt: int, offset: int, size: int) -> bytes:
        """Part of the output."""
        return await self.read(job, attempt, Stream.STDOUT, offset, size)

    async def size(self, job: Job, attempt: int, stream: Stream) -> int:
        """How long it is."""
        return len(self._data.get((job.uid, attempt, stream), b""))

    async def wait(self, job: Job, attempt: int, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Until there is more."""
        place = (job.uid, attempt, stream)
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout):
                while len(self._data.get(place, b"")) <= offset:
                    await self._grown.setdefault(place, asyncio.Event()).wait()
        except TimeoutError:
            return
        finally:
            self.waiting -= 1


class DiskFolders:
    """Folders of jobs that a test fills: `<root>/<uid of the job>`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def list_files(self, job: Job, most: int) -> FolderListing:
        """What is in one."""
        return list_folder(self.root / job.uid, most)

    async def read_file(self, job: Job, path: str, offset: int, size: int) -> FilePart:
        """Part of a file in one."""
        return read_part(self.root / job.uid, path, os.geteuid(), offset, size)


@dataclass(frozen=True)
class RunningApi:
    """The API, what it stands on, and who may use it."""

    url: str
    context: Context
    logs: MemoryLogs
    blobs: DirectoryBlobs
    folders: DiskFolders
    folder: Path
    tokens: Mapping[str, str]
    """`admin` (of the platform); `member` and `viewer` of the tenant; `stranger`, a member of another one."""

    def client(
        self, who: str = "member", headers: Mapping[str, str] | None = None, **options: Any
    ) -> httpx.AsyncClient:
        """An HTTP client with somebody's token, or with none."""
        sent = {**({"Authorization": f"Bearer {self.tokens[who]}"} if who else {}), **(headers or {})}
        return httpx.AsyncClient(base_url=self.url, headers=sent, timeout=60, trust_env=False, **options)

    async def create_job(self, name: str, spec: Mapping[str, Any] | None = None, **status: Any) -> Record:
        """A job of the tenant, in whatever state."""
        metadata = {"name": name, "namespace": TENANT_NAME}
        obj = {"metadata": metadata, "kind": "Job", "spec": {"command": ["true"], **(spec or {})}, "status": status}
        record = await self.context.store.create(JOB, validate(JOB, obj))
        return await self.change_job(name, **status) if status else record

    async def change_job(self, name: str, **status: Any) -> Record:
        """Change a job's status, as a reconciler does."""
        store = self.context.store
        record = await store.get(Key(JOB.name, TENANT_NAME, name))
        changed = {**record.obj, "status": {**record.obj.get("status", {}), **status}}
        return await store.update(JOB, changed, Part.STATUS)


@asynccontextmanager
async def running_api(
    folder: Path, limits: RequestLimits | None = None, *, tls: bool = False
) -> AsyncIterator[RunningApi]:
    """Serve a fresh API until the block is left. With `tls`, because kubectl sends no token over plain HTTP."""
    store, blobs, logs = SqliteStore(folder / "store.db"), DirectoryBlobs(folder / "blobs"), MemoryLogs()
    await store.open()
    await blobs.open()
    tokens = await _people(store)
    authenticator = Authenticator(store)
    await authenticator.start()
    telemetry = Telemetry(folder / "series.db", logs)
    await telemetry.open()
    folders = DiskFolders(folder / "runs")
    audit = AuditLog(folder / "audit" / "log-test", note=partial(noting.note, store, "log-test"))
    audit.open()
    audit.start()
    context = Context(
        store,
        authenticator,
        blobs,
        logs,
        telemetry,
        limits or RequestLimits(),
        folders=folders,
        plans=StorePlans(store),
        images=EngineImages(store, EngineRegistry()),
        sealer=Sealer(sealing_key()),
        audit=audit,
    )
    app = create_app(context)
    console = Console(context, app, new_key())
    # Named as TCP: only then does asyncio switch Nagle's algorithm off, which costs 40 ms per answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    secure = await asyncio.to_thread(_certificate, folder) if tls else {}
    server = uvicorn.Server(uvicorn.Config(console, log_level="warning", lifespan="off", backlog=2048, **secure))
    serving = asyncio.create_task(server.serve([listener]), name="test server")
    try:
        async with asyncio.timeout(30):
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
        url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
        yield RunningApi(url, context, logs, blobs, folders, folder, tokens)
    finally:
        app.close()
        server.should_exit = True
        await serving
        listener.close()
        await console.close()
        await telemetry.close()
        await audit.close()
        await authenticator.close()
        await store.close()


def _certificate(folder: Path) -> dict[str, Any]:
    certificate, key = folder / "tls.crt", folder / "tls.key"
    options = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [
            "openssl",
            "req",
            *options.split(),
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    return {"ssl_certfile": certificate, "ssl_keyfile": key}


def write_tls_kubeconfig(api: RunningApi, who: str) -> Path:
    """A kubeconfig for somebody, which trusts the certificate."""
    path = write_kubeconfig(api.folder / f"{who}.kubeconfig", api.url, api.tokens[who], TENANT_NAME)
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["certificate-authority"] = str(api.folder / "tls.crt")
    path.write_text(json.dumps(config))
    return path


async def _people(store: SqliteStore) -> dict[str, str]:
    for name in (TENANT_NAME, "biology"):
        await store.create(TENANT, validate(TENANT, {"kind": "Tenant", "metadata": {"name": name}}))
    found: dict[str, str] = {}
    for who, namespace, role in (
        ("admin", SYSTEM_NAMESPACE, Role.ADMIN),
        ("member", TENANT_NAME, Role.MEMBER),
        ("viewer", TENANT_NAME, Role.VIEWER),
        ("stranger", "biology", Role.MEMBER),
    ):
        name, found[who], sha256 = new_secret()
        metadata = {"name": name, "namespace": namespace}
        spec = {"user": who, "role": role.value, "sha256": sha256}
        await store.create(TOKEN, validate(TOKEN, {"kind": "Token", "metadata": metadata, "spec": spec}))
    return found
