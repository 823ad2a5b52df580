"""One control plane, from an empty folder to listening, and back down in order.

Starting: the folder is taken (one instance per folder), the store opened, what the first start needs is made, the
port is bound, and only then is anybody notified that it is ready. Stopping: no new requests, streams end, reconcilers
stop, engines are let go (their runs go on), the store finishes what it accepted.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import ipaddress
import json
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import uvicorn
import uvloop
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isthmus import __version__
from isthmus._kit.crashpoints import reach
from isthmus._kit.private_files import write_private
from isthmus._kit.sealing import Sealer
from isthmus._kit.tasks import Supervised
from isthmus.api.app import create_app
from isthmus.api.context import Context
from isthmus.client.kubeconfigs import Access, write_access
from isthmus.config import ServerSettings
from isthmus.console import Console
from isthmus.engines.agent.contacts import AgentHub
from isthmus.engines.agent.frames import LARGEST
from isthmus.errors import Misconfigured
from isthmus.identity.agent_keys import AgentKeys
from isthmus.identity.audit import noting
from isthmus.identity.audit.audit_log import AuditLog
from isthmus.identity.audit.forwarding import Forwarder, parse_place
from isthmus.identity.authenticating import Authenticator
from isthmus.metrics import count_task_failure
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.runtime.leading import LeaderElection, LeaderSettings, Leadership, Sole
from isthmus.runtime.managing import LONGEST_PAUSE
from isthmus.storage.directory import DirectoryBlobs
from isthmus.store.base import Store
from isthmus.store.moving import check_complete
from isthmus.store.opening import open_lease_store, open_store, several_may_open, spaces_of
from isthmus.telemetry.updating import Telemetry

from . import certificates
from .bootstrap import (
    DEFAULT_TENANT,
    admin_token,
    audit_folder,
    console_key,
    files_folder,
    first_objects,
    secrets_key,
    storage_allowance,
)
from .certificates import TlsIdentity
from .control_plane import ControlPlane
from .drivers import Drivers, host_driver, registry_client
from .engine_images import EngineImages
from .engine_visits import EngineVisits
from .listening import Listener
from .logs import EngineLogs
from .plans import StorePlans
from .port_holding import HeldPort, held
from .watchdog import Watchdog

MANY_FILES = 65_536


@dataclass(frozen=True, slots=True)
class Instance:
    """A running control plane, as others find it."""

    url: str
    pid: int
    data: Path
    link: str = ""
    """Signs a browser in, once and soon; known to the process that serves."""


def run(settings: ServerSettings, ready: Callable[[Instance], None]) -> None:
    """Serve until a signal says stop. Calls `ready` once requests are answered."""
    tune_collector()
    allow_many_files()
    uvloop.run(serve(settings, ready))


def tune_collector() -> None:
    """Look for garbage cycles rarely: objects number in the ten thousands and make no cycles, and looking at all of
    them every few hundred allocations made the time per job grow with the number of jobs."""
    gc.set_threshold(100_000, 50, 100)


def allow_many_files() -> None:
    """Every follower of a log is a descriptor, and most systems permit a thousand unless one asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve(settings: ServerSettings, ready: Callable[[Instance], None]) -> None:
    """Serve until cancelled or asked to stop by a signal."""
    with _taken(settings.data):
        os.umask(0o077)  # what we make from here on is ours alone; what jobs need is opened to them
        port = _port(settings)
        try:
            async with _store(settings) as store:
                shared = await _prepare(settings, store)
                async with _audit(settings, store, shared) as audit:
                    await _serve(settings, store, shared, audit, port, ready)
        finally:
            await port.close()


@asynccontextmanager
async def _audit(settings: ServerSettings, store: Store, shared: Path) -> AsyncIterator[AuditLog]:
    """The audit log, for as long as requests are answered."""
    folder = audit_folder(shared, settings)
    forward = Forwarder(parse_place(settings.audit_forward)) if settings.audit_forward else None
    audit = AuditLog(folder, note=partial(noting.note, store, folder.name), forward=forward)
    audit.open()
    audit.start()
    if forward is not None:
        forward.start()
    try:
        yield audit
    finally:
        await audit.close()
        if forward is not None:
            await asyncio.to_thread(forward.close)


async def _prepare(settings: ServerSettings, store: Store) -> Path:
    """What the first start makes; the folder of files."""
    await check_complete(store)
    await first_objects(store, settings)
    return await files_folder(store, settings)


async def _serve(
    settings: ServerSettings,
    store: Store,
    shared: Path,
    audit: AuditLog,
    port: HeldPort,
    ready: Callable[[Instance], None],
) -> None:
    token = await admin_token(store, settings)
    identity = _identity(settings)
    url, secure_url = _urls(settings, port.listener)
    write_access(settings.kubeconfig, Access(secure_url, token, DEFAULT_TENANT, identity.authority), "isthmus")
    blobs = DirectoryBlobs(shared, partial(storage_allowance, store))
    await blobs.open()
    sealer = Sealer(secrets_key(shared))
    agents = AgentHub(lambda site: keys.identify(site), version=__version__)
    keys = AgentKeys(store, changed=agents.changed, removed=agents.forget)
    await keys.start()
    engines, drivers = EngineRegistry(), Drivers(settings, agents=agents, note_root=port.note_root)
    logs = EngineLogs(store, engines, drivers)
    authenticator = Authenticator(store)
    await authenticator.start()
    telemetry = Telemetry(settings.series, logs)
    await telemetry.open()
    context = Context(
        store=store,
        authenticator=authenticator,
        blobs=blobs,
        logs=logs,
        telemetry=telemetry,
        folders=logs,
        plans=StorePlans(store),
        images=EngineImages(store, engines),
        sealer=sealer,
        visits=EngineVisits(engines),
        agents=agents,
        audit=audit,
    )
    app = create_app(context, [_authority_route(identity)])
    console = Console(context, app, console_key(shared))
    instance = Instance(url, os.getpid(), settings.data, url + console.link(token))
    config = uvicorn.Config(
        console,
        loop="none",
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=LARGEST,
        ws_ping_interval=None,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    plain = settings.insecure or _is_loopback(settings.host)

    def stop_streams() -> None:
        agents.close()
        app.close()

    server = Listener(config, identity.context, plain=plain, stopping=stop_streams)
    several = several_may_open(settings.store)
    leadership = Leadership() if several else Sole()
    agents.accepting = lambda: leadership.held
    watchdog = Watchdog()
    watchdog.start()

    async def lead() -> None:
        plane = ControlPlane(
            store=store,
            blobs=blobs,
            engines=engines,
            make_engine=drivers.make,
            make_exposure=drivers.expose,
            leadership=leadership,
            workers=settings.workers,
            spaces=spaces_of(store),
            others_write=settings.in_cluster,
            sealer=sealer,
            make_registries=registry_client,
            make_host=host_driver,
        )
        try:
            await plane.run()
        finally:
            agents.close()  # they look for whoever leads now

    election = LeaderElection(
        store,
        settings.identity,
        LeaderSettings(),
        leadership,
        open_lease_store=partial(open_lease_store, settings.store or ""),
    )
    work = partial(election.run, lead) if several else lead
    control = Supervised("control plane", work, failed=count_task_failure, longest_pause=LONGEST_PAUSE)
    control.start()
    try:
        await _listen(server, port.listener, lambda: _announce(settings, instance, ready))
    finally:
        watchdog.close()
        await control.stop()
        if several:
            await election.resign()
        await console.close()
        await telemetry.close()
        await logs.close()
        await authenticator.close()
        await keys.close()
        settings.instance.unlink(missing_ok=True)


async def _listen(server: uvicorn.Server, listener: socket.socket, announce: Callable[[], None]) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn offers a flag, not an event
        await asyncio.sleep(0.005)
    if server.started:
        announce()
    await serving


def _announce(settings: ServerSettings, instance: Instance, ready: Callable[[Instance], None]) -> None:
    reach("server:ready")
    write_private(settings.instance, json.dumps({"url": instance.url, "pid": instance.pid}) + "\n")
    ready(instance)


def _identity(settings: ServerSettings) -> TlsIdentity:
    if settings.tls_certificate and settings.tls_key:
        return certificates.given(settings.tls_certificate, settings.tls_key)
    return certificates.own(settings.data / "tls", settings.host)


def _authority_route(identity: TlsIdentity) -> Route:
    """Where `isthmus login` on this machine finds the authority that vouches for the server."""

    async def authority(_: Request) -> Response:
        if identity.authority is None:
            return Response(status_code=404)
        return Response(identity.authority, media_type="application/x-pem-file")

    return Route("/.well-known/isthmus/ca.pem", authority)


@asynccontextmanager
async def _store(settings: ServerSettings) -> AsyncIterator[Store]:
    store = await open_store(settings.store or settings.database)
    try:
        yield store
    finally:
        await store.close()


def running_instance(data: Path) -> Instance | None:
    """The instance that has this folder now; None if nobody has."""
    try:
        with (data / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except FileNotFoundError:
        return None
    except BlockingIOError:
        pass
    except PermissionError:
        raise Misconfigured(f"{data} belongs to another account; choose another folder with --data") from None
    try:
        found = json.loads((data / "instance.json").read_text())
        return Instance(found["url"], found["pid"], data)
    except (OSError, ValueError, KeyError):
        return Instance("", int((data / "lock").read_text().strip() or 0), data)


class _taken:  # noqa: N801 - used as a verb: with _taken(folder)
    """Holds the data folder for this process; raises Misconfigured when another one has it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._lock: IO[str] | None = None

    def __enter__(self) -> None:
        try:
            self._data.mkdir(parents=True, exist_ok=True)
            # Others may pass through (jobs of other accounts run below) but not look around.
            for folder in (self._data, self._data / "sites"):
                folder.mkdir(exist_ok=True)
                if os.geteuid() in (0, folder.stat().st_uid):  # a volume of a pod is another's, and to be used as it is
                    folder.chmod(0o711)
            self._lock = (self._data / "lock").open("a+")
            (self._data / "lock").chmod(0o600)  # who may open it may lock it
        except OSError as error:
            raise Misconfigured(
                f"the data folder {self._data} cannot be used ({error.strerror}); choose another with --data"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise Misconfigured(
                f"{self._data} is in use by another instance of Isthmus; stop it with isthmus down"
            ) from None
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()

    def __exit__(self, *_: object) -> None:
        if self._lock:
            self._lock.close()


def _port(settings: ServerSettings) -> HeldPort:
    """Where we listen, held from now on where the next start is to find it: any free port is another one then."""
    port = held(settings.data, settings.sites, settings.host, settings.port)
    if port is None:
        port = HeldPort(settings.data, _bind(settings), [str(settings.sites)], None)
    if settings.port:
        port.hold()
    return port


def _bind(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        raise Misconfigured(f"cannot listen on {where} ({error.strerror}); choose another with --listen") from None
    listener.listen(2048)
    listener.setblocking(False)
    return listener


def _urls(settings: ServerSettings, listener: socket.socket) -> tuple[str, str]:
    """Where the API is: the address for people, and the one for kubectl, which insists on TLS."""
    port = listener.getsockname()[1]
    host = settings.host
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    secure = f"https://{shown}:{port}"
    return (f"http://{shown}:{port}" if _is_loopback(settings.host) else secure), secure


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
