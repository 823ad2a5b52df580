"""The local engine: the contract, put together from its parts.

Submitting is three steps, each of which may be repeated: prepare the folder (renamed into place when complete), have
the keeper fork a supervisor for it, look. The supervisor decides under the run's lock whether it is the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import platform
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from isthmus._kit.crashpoints import reach
from isthmus._kit.quantities import format_unequal_bytes
from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines import batch_scripts
from isthmus.engines.base import (
    Capabilities,
    EndReason,
    FilePart,
    FileSink,
    FileSource,
    FolderListing,
    Inventory,
    LogReader,
    Observation,
    Run,
    RunDisk,
    RunState,
    SiteImage,
    Stream,
    TerminalSize,
)
from isthmus.engines.collecting import collect, remove_tree
from isthmus.engines.meters import metering
from isthmus.engines.sent_images import check_reference, contents, without_image
from isthmus.engines.socket_streams import SocketStream
from isthmus.errors import EngineRefused, Misconfigured, SiteUnavailable
from isthmus.images.cache import CacheSettings, ImageCache, UnpackedImage
from isthmus.images.manifests import architecture_of
from isthmus.images.registries import RegistryClient, trusting
from isthmus.images.resolving import ImageFinder
from isthmus.metrics import count_task_failure
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.sites import Capacity, SiteNode

from . import cgroups, launching
from .devices import DeviceKind, Grant, allocate, check_devices, find_devices
from .inside_streams import LocalExecution, open_command, open_port
from .isolation import NONE, OWN_TENANT, Sandbox, SandboxProbe, closed_parent, resolve
from .keeping import Keeper
from .layout import Layout, RunFolder, locked, read_record, valid_run_id, write_record
from .observing import free_work, is_over, look, look_and_settle, process_of, settle
from .processes import open_pidfd
from .reading import LocalReader, measured
from .run_following import RunFollower
from .settings import LocalSettings
from .staging import Contents, StagedFolder, StagingArea
from .tenant_environments import PREFIX, TenantEnvironments

SHARED_NETWORK = "the machine's own, loopback included"
# A name that is too long, or not for this file system: trying again would not help.
_NEVER = (errno.ENAMETOOLONG, errno.EILSEQ)


class LocalEngine:
    """Runs jobs as processes of this machine."""

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._layout = Layout(settings.root.absolute())
        self._staging = StagingArea(self._layout, settings.owner)
        self._superuser = os.geteuid() == 0
        self._cpus = settings.cpus if settings.cpus is not None else float(len(os.sched_getaffinity(0)))
        self._memory = settings.memory_bytes if settings.memory_bytes is not None else _machine_memory() * 9 // 10
        self._kinds: dict[str, DeviceKind] = find_devices((), settings.devices, int(self._cpus))
        self._classes: dict[str, DeviceClass] = {}
        self._power: dict[str, tuple[float, float]] = {}
        self._cgroups = cgroups.Cgroups()
        self._sandboxes = SandboxProbe(
            self._layout.root,
            settings.visible,
            superuser=self._superuser,
            programs=settings.programs,
            network=settings.network,
        )
        self._cache = ImageCache(
            CacheSettings(self._layout.root / "images", max_bytes=settings.max_image_bytes), self._images_in_use
        )
        self._environments = TenantEnvironments(self._layout.root, superuser=self._superuser)
        self._registries: RegistryClient | None = None
        self.tasks = SupervisedTasks(failed=count_task_failure)
        self._reader = LocalReader(self._layout, self.tasks)
        self._follower = RunFollower(self._layout, self._reader.wake)
        self._keeper: Keeper | None = None

    @property
    def root(self) -> Path:
        """The folder of everything of its runs."""
        return self._layout.root

    @property
    def capabilities(self) -> Capabilities:
        """What it can do by itself: images need the sandbox."""
        able = self._no_images() is None
        return Capabilities(samples=True, log_files=True, images=able, image_files=able, environments=True)

    def _no_images(self) -> str | None:
        """Why no images are run here; None if they are."""
        if self._settings.isolation == "None":
            return "they need the sandbox, which the site's settings switch off"
        sandbox, why = self._sandboxes.known
        if sandbox is None:
            return f"they need the sandbox, but {why}"
        return None if sandbox.images else "chroot of GNU coreutils is not installed"

    async def open(self) -> None:
        """Find out what the machine can do, have a keeper ready, find runs that were started earlier."""
        await asyncio.to_thread(self._look_around)
        self._keeper = Keeper(self._layout.root)
        await self._keeper.ensure()
        self._reader.open()
        self._follower.rescan(await asyncio.to_thread(self._layout.run_ids))
        self.tasks.start("local-rescan", self._rescan)

    def _look_around(self) -> None:
        try:
            self._layout.make(0o700)
            self._staging.take_over()
            self._environments.tidy()
        except OSError as error:
            raise SiteUnavailable(f"The folder of runs {self._layout.root} cannot be used: {error}.") from error
        self._current_sandbox(again=True)
        name = "isthmus-" + hashlib.sha256(os.fsencode(self._layout.root)).hexdigest()[:12]
        self._cgroups = cgroups.detect(name, self._settings.system, superuser=self._superuser)

    def _current_sandbox(self, *, again: bool = False) -> Sandbox | None:
        """The sandbox for a job that starts now; raises Misconfigured where there must be one. Call it in a thread."""
        if self._settings.isolation == "None":
            sandbox, why = None, ""
        else:
            sandbox, why = self._sandboxes.find(again=again)
        if sandbox is None and self._settings.isolation == "Required":
            raise Misconfigured(f"Isolation is required, but {why}. Or set isolation to Preferred.")
        if sandbox is None and self._settings.network in ("None", "Private"):
            wanted = "no network" if self._settings.network == "None" else "a network of their own"
            raise Misconfigured(f"Jobs shall have {wanted}, which needs the sandbox, but {why or 'it is off'}.")
        if sandbox is None and self._superuser:
            if closed := closed_parent(self._layout.root):
                raise Misconfigured(
                    f"Jobs of other accounts cannot reach {self._layout.root}, because {closed} is closed to them. "
                    "Install bubblewrap, or choose another folder for the runs."
                )
            self._layout.make(0o711)
        return sandbox

    def _check_isolation(self, run: Run, sandbox: Sandbox | None, why: str) -> None:
        """Where nothing keeps tenants apart, only the administrator's own tenant runs, unless the settings say so."""
        if sandbox is None and self._settings.isolation == "Preferred" and run.namespace != OWN_TENANT:
            raise EngineRefused(
                f"This site cannot isolate jobs: {why}. So it runs no jobs of tenants other than {OWN_TENANT}. "
                "Ask the administrator to mend that, or to set local.isolation of the site to BestEffort."
            )

    async def close(self) -> None:
        """Let go. Runs go on, and so does the keeper."""
        await self.tasks.close()
        self._follower.close()
        await self._reader.close()
        self._cache.close()
        if self._registries is not None:
            await self._registries.close()

    async def stop_keeper(self) -> None:
        """Have the keeper leave, when the platform itself is taken down. Runs go on."""
        if self._keeper is not None:
            await self._keeper.stop()
        cgroups.remove(cgroups.Group([str(home) for home in self._cgroups.homes.values()]))

    async def _rescan(self) -> None:
        """The safety net under the events; it also keeps the keeper warm."""
        assert self._keeper is not None
        while True:
            await asyncio.sleep(self._settings.rescan_seconds)
            with contextlib.suppress(SiteUnavailable, OSError):
                self._follower.rescan(await asyncio.to_thread(self._layout.run_ids))
                await self._keeper.ensure()

    async def probe(self, classes: Sequence[DeviceClass]) -> Inventory:
        """What this machine offers; the classes are remembered for later runs."""
        self._kinds = await asyncio.to_thread(find_devices, classes, self._settings.devices, int(self._cpus))
        self._classes = {c.name: c for c in classes}
        self._power = {c.name: (p.idle_watts, p.busy_watts) for c in classes if (p := c.spec.power) is not None}
        if not os.access(self._layout.runs, os.W_OK | os.X_OK):
            raise SiteUnavailable(f"The folder of runs {self._layout.root} cannot be used: it is missing or closed.")
        self._staging.check()
        sandbox = await asyncio.to_thread(self._current_sandbox, again=True)
        counts = {name: len(kind.units) for name, kind in self._kinds.items()}
        node = SiteNode(name=socket.gethostname(), cpus=self._cpus, memory_bytes=self._memory, devices=counts)
        return Inventory(
            version=f"Linux {platform.release()}",
            capacity=Capacity(cpus=self._cpus, memory_bytes=self._memory, devices=counts),
            nodes=(node,),
            features=self._features(sandbox),
        )

    def _features(self, sandbox: Sandbox | None) -> dict[str, str]:
        why = self._no_images()
        accounts = "each tenant's own" if self._superuser else "one for all (not started as root)"
        return {
            "isolation": "bubblewrap" if sandbox else self._no_isolation(),
            "system-calls": "filtered (seccomp)" if sandbox and sandbox.filtered else "not filtered",
            "network": _network(sandbox),
            "ports": _ports(sandbox),
            "accounts": accounts,
            "images": f"bubblewrap {sandbox.version}" if sandbox and not why else f"none: {why}",
            "memory-limit": self._cgroups.describe("memory") or "rlimit, for each process",
            "cpu-limit": self._cgroups.describe("cpu") or "none",
            "process-limit": self._cgroups.describe("pids") or "none",
            "energy": "rapl" if any(self._settings.powercap.glob("intel-rapl:*/energy_uj")) else "estimated",
        }

    def _no_isolation(self) -> str:
        apart = "tenants are kept apart by accounts only" if self._superuser else "tenants are not kept apart"
        if self._settings.isolation == "None":
            return f"none: the site's settings switch it off; {apart}"
        if self._settings.isolation == "Preferred":
            apart = f"only jobs of the tenant {OWN_TENANT} run"
        return f"none: {self._sandboxes.known[1]}; {apart}"

    def check(self, run: Run) -> None:
        """Refuse what can never work here."""
        if not valid_run_id(run.id):
            raise EngineRefused(f"{run.id!r} is not the id of a run: it must be a uid, a dot and a number.")
        if run.image is not None:
            check_reference(run.image)
            if why := self._no_images():
                raise EngineRefused(f"This site runs no container images: {why}. Choose another site, or remove image.")
        if run.nodes > 1:
            raise EngineRefused(f"The job asks for {run.nodes} nodes; the local engine is a single machine.")
        if not run.command and run.script is None:
            raise EngineRefused("There is neither a command nor a script to run.")
        if run.milli_cpus > self._cpus * 1000:
            raise EngineRefused(f"The job asks for {run.milli_cpus / 1000:g} cpus; this machine offers {self._cpus:g}.")
        if run.memory_bytes > self._memory:
            asked, offered = format_unequal_bytes(run.memory_bytes, self._memory)
            raise EngineRefused(f"The job asks for {asked} of memory; this machine offers {offered}.")
        if self._superuser and run.account.user is None and not run.account.uid:
            raise EngineRefused("Jobs never run as root. Give the tenant an account or uid of its own.")
        if self._settings.isolation == "Preferred" and not self._sandboxes.stale:
            self._check_isolation(run, *self._sandboxes.known)
        launching.check_words(run)
        check_devices(run.devices, self._kinds)

    async def submit(self, run: Run, files: FileSource | None = None) -> Observation:
        """Start the run, or find it if it was started before."""
        assert self._keeper is not None, "the engine is not open"
        seen = await self.observe(run.id)
        if seen is not None:  # found before it is checked: what runs is not refused, whatever changed since
            self._follower.follow(run.id)
            return seen
        self.check(run)
        if not self._layout.run(run.id).path.exists():
            reach("submit:begin")
            if run.image is None:
                await asyncio.to_thread(self._prepare, run, files)
            else:
                # Until the run's folder is there, which says that it uses the image, the block does.
                async with self._finder().use(run.image, contents(files), run.namespace, run.login) as image:
                    await asyncio.to_thread(self._prepare, run, without_image(run.image, files), image)
        answer = await self._keeper.start_run(run.id)
        reach("submit:asked")
        seen = await self.observe(run.id)
        if seen is None:
            why = answer.removeprefix("failed ") or "its supervisor did not answer"
            raise SiteUnavailable(f"Run {run.id} was not started: {why}. It is tried again later.")
        self._follower.follow(run.id)
        return seen

    def _finder(self) -> ImageFinder:
        if self._registries is None:  # it reads all authorities that the system trusts: not before it is needed
            try:
                self._registries = RegistryClient(trusting(self._settings.registry_authorities))
            except ValueError as error:
                raise SiteUnavailable(f"registries.authorities of the site cannot be used: {error}.") from error
        return ImageFinder(self._cache, self._registries, architecture_of(platform.machine()))

    async def list_images(self) -> list[SiteImage]:
        """The images that are kept unpacked."""
        return await asyncio.to_thread(self._list_images)

    def _list_images(self) -> list[SiteImage]:
        busy = self._images_in_use()
        return [
            SiteImage(
                kept.image.name, kept.image.digest, kept.image.bytes, kept.used_at, kept.tenants, kept.private,
                kept.image.digest in busy, kept.image.key,
            )
            for kept in self._cache.kept()
        ] + self._environments.list()  # fmt: skip

    async def remove_image(self, key: str, tenant: str | None) -> bool:
        """Remove an image or environment that no run uses, or that it is the tenant's."""
        if key.startswith(PREFIX):
            return await asyncio.to_thread(self._environments.remove, key, tenant)
        return await asyncio.to_thread(self._cache.leave, key, tenant)

    def _images_in_use(self) -> set[str]:
        folders = (self._layout.run(run_id) for run_id in self._layout.run_ids())
        specs = (read_record(folder.spec) or {} for folder in folders if self._holds_units(folder))
        return {image for spec in specs if isinstance(image := spec.get("image"), str)}

    def _prepare(self, run: Run, files: FileSource | None, image: UnpackedImage | None = None) -> None:
        try:
            self._stage(run, files, image)
        except Misconfigured as error:  # the sandbox is gone since the site was looked at; it may come back
            raise SiteUnavailable(error.message) from error
        except OSError as error:
            if error.errno in _NEVER:
                raise EngineRefused(
                    f"A file sent along cannot be made here: {error}. Rename it, or leave it out with .gitignore."
                ) from error
            self._staging.check()
            raise SiteUnavailable(f"The folder of run {run.id} could not be prepared: {error}.") from error

    def _stage(self, run: Run, files: FileSource | None, image: UnpackedImage | None) -> None:
        if run.python is not None:
            run = replace(run, python=run.python.of_site(self._settings.package_index, self._settings.wheels))
        identity = resolve(run.account, superuser=self._superuser)
        sandbox = self._current_sandbox()
        self._check_isolation(run, sandbox, self._sandboxes.known[1])
        if image is not None and (why := self._no_images()):
            raise SiteUnavailable(f"This site runs no container images now: {why}. It is tried again later.")
        open_path = self._superuser and sandbox is None
        folder = self._layout.run(run.id)
        staging = StagedFolder(self._staging, folder, identity, superuser=self._superuser, open_path=open_path)
        with staging:
            staging.bring(files)
            # Under one lock: choosing units, and the folder that makes the choice hold.
            with locked(self._layout.root / "units.lock") if run.devices else contextlib.nullcontext():
                if folder.path.exists():
                    return
                grant = self._grant(run)
                identity = replace(identity, groups=grant.groups)
                home, tmp = launching.homes(folder, sandbox)
                node = socket.gethostname()
                env = launching.environment(
                    run,
                    identity,
                    grant,
                    path=self._settings.path,
                    home=home,
                    tmp=tmp,
                    node=node,
                    image=image.env if image else None,
                )
                environments = None
                if run.python is not None:
                    environments = self._environments.folder(
                        run.namespace, run.account.uid, identity, open_path=open_path
                    )
                memory = run.memory_bytes or min(run.memory_share or self._memory, self._memory)
                group = cgroups.plan(
                    self._cgroups,
                    run.id,
                    milli_cpus=run.milli_cpus,
                    memory_bytes=memory,
                    max_processes=self._settings.max_processes,
                )
                spec = launching.make_spec(
                    run,
                    folder,
                    identity,
                    grant,
                    sandbox,
                    cgroup=group.to_json() if group else None,
                    memory_bytes=memory,
                    limits_memory=self._cgroups.can("memory"),
                    max_log_bytes=self._settings.max_log_bytes,
                    max_file_bytes=self._settings.max_file_bytes,
                    max_disk_bytes=self._settings.max_disk_bytes,
                    superuser=self._superuser,
                    powercap=str(self._settings.powercap),
                    path=self._settings.path,
                    image=image,
                    environments=environments,
                    max_environment_bytes=self._settings.max_image_bytes,
                )
                logs = {
                    stream: batch_scripts.file_name(pattern, run, user=identity.name, node=node)
                    for stream, pattern in run.log_files.items()
                }
                launcher = launching.launcher(
                    env, run.working_dir, run.stdin, image=image is not None, reports=run.python is not None
                )
                staging.finish(Contents(spec, launcher, run.script, logs, run.working_dir, run.append_logs))

    def _grant(self, run: Run) -> Grant:
        def holds(other: str) -> bool:
            if other == run.id or not valid_run_id(other):
                return False
            return self._holds_units(self._layout.run(other))

        grant = allocate(self._layout.units, run.id, run.devices, self._kinds, holds)
        power = {k: v for k, v in self._power.items() if k == "cpu" or k in run.devices}
        return replace(grant, power=power, metering=metering(self._classes, run.devices))

    def _holds_units(self, folder: RunFolder) -> bool:
        # One that is prepared and not yet started keeps its units: it may be started at any moment.
        if not folder.path.exists():
            return False
        return not folder.ended.exists() and not (folder.started.exists() and is_over(folder))

    async def observe(self, run_id: str) -> Observation | None:
        """What its folder says of a run."""
        folder = self._folder(run_id)
        try:
            seen = look(folder) if folder else None
            if folder and seen is not None and seen.state is RunState.UNKNOWN:
                seen = await asyncio.to_thread(look_and_settle, folder)
            return seen
        except OSError as error:
            raise SiteUnavailable(f"The folder of run {run_id} cannot be read: {error}.") from error

    def changes(self) -> AsyncIterator[set[str]]:
        """Ids of runs that were started or have ended."""
        return self._follower.subscribe()

    async def cancel(self, run_id: str, *, grace: float = 5.0) -> None:
        """Leave word for the supervisor and wake it. A run that is not known, or not started, never will be."""
        folder = self._folder(run_id)
        if folder is None or folder.ended.exists():
            return
        try:
            await asyncio.to_thread(self._cancel, folder, grace)
        except OSError as error:
            raise SiteUnavailable(f"Run {run_id} could not be cancelled: {error}.") from error
        self._follower.follow(run_id)

    def _cancel(self, folder: RunFolder, grace: float) -> None:
        # The folder alone keeps a submission that is still on its way from being carried out.
        folder.path.mkdir(mode=0o700, exist_ok=True)
        if not folder.cancel.exists():
            write_record(folder.cancel, {"grace": grace})
        started = read_record(folder.started)
        if started is None:
            # If its supervisor is just starting it holds the lock, and will see the wish when it has started.
            settle(folder, EndReason.CANCELLED)
            return
        process = process_of(started)
        fd = open_pidfd(*process) if process is not None else None
        if fd is not None:
            try:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, signal.SIGUSR1)
            finally:
                os.close(fd)

    async def collect(self, run_id: str, patterns: Sequence[str], sink: FileSink) -> list[str]:
        """Bring back the files that match."""
        folder = self._reader.folder(run_id)
        seen = await self.observe(run_id)
        if seen is None or seen.state is not RunState.ENDED:
            raise EngineRefused(f"Run {run_id} has not ended; its files are collected after the end.")
        owner = (read_record(folder.spec) or {}).get("owner", -1)
        if not isinstance(owner, int):
            raise SiteUnavailable(f"The record of run {run_id} does not say whose it is; it was damaged.")
        try:
            return await collect(folder.work, owner, patterns, sink, self._settings.max_output_bytes)
        except FileNotFoundError:
            return [f"The working folder of run {run_id} is no longer there."] if patterns else []
        except OSError as error:
            raise SiteUnavailable(f"The working folder of run {run_id} cannot be read: {error}.") from error

    async def measure(self) -> Mapping[str, RunDisk]:
        """What each run takes of this machine's disk."""
        try:
            return await asyncio.to_thread(measured, self._layout)
        except OSError as error:
            raise SiteUnavailable(f"The folder of runs {self._layout.root} cannot be read: {error}.") from error

    async def tidy(self, run_id: str) -> None:
        """Free the working folder of a run that is over."""
        folder = self._folder(run_id)
        if folder is not None and await asyncio.to_thread(is_over, folder):
            await asyncio.to_thread(free_work, folder)

    async def forget(self, run_id: str) -> None:
        """Remove everything of a run that is over."""
        folder = self._folder(run_id)
        if folder is not None and await asyncio.to_thread(self._forget, folder):
            self._follower.forget(run_id)

    def _forget(self, folder: RunFolder) -> bool:
        if not folder.path.exists() or not is_over(folder):
            return False
        lock = folder.lock()
        if lock is None:  # a supervisor is just starting, or has not quite left
            return False
        try:
            if not is_over(folder):
                return False
            free_work(folder)
            # Out of the way first: a half-removed folder must not look like a run that was never started.
            self._staging.check()
            gone = self._staging.new(folder.run_id)
            folder.path.rename(gone)
            remove_tree(gone)
        finally:
            os.close(lock)
        return True

    async def connect(self, run_id: str, port: int) -> SocketStream:
        """Connect to a port in the network of a run."""
        return await open_port(self._reach(run_id), run_id, port)

    async def execute(
        self, run_id: str, command: Sequence[str], terminal: TerminalSize | None = None
    ) -> LocalExecution:
        """Start a command beside a run."""
        return await open_command(self._reach(run_id), run_id, command, terminal)

    def _reach(self, run_id: str) -> Keeper:
        assert self._keeper is not None, "the engine is not open"
        self._reader.folder(run_id)
        return self._keeper

    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Part of a log."""
        return await self._reader.read_log(run_id, stream, offset, size)

    async def read_samples(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of the journal; empty for a run that was never sampled."""
        return await self._reader.read_samples(run_id, offset, size)

    async def list_files(self, run_id: str, most: int) -> FolderListing:
        """What is in the folder of the job."""
        return await self._reader.list_files(run_id, most)

    async def read_file(self, run_id: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a file of the job."""
        return await self._reader.read_file(run_id, path, offset, size)

    async def log_size(self, run_id: str, stream: Stream) -> int:
        """How long a log is now."""
        return await self._reader.log_size(run_id, stream)

    async def wait_log(self, run_id: str, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Wait for a log to grow or the run to end."""
        await self._reader.wait_log(run_id, stream, offset, timeout)

    async def open_to_read(self) -> LogReader:
        """A reader of the logs that lie here."""
        reader = LocalReader(self._layout)
        reader.open()
        return reader

    def _folder(self, run_id: str) -> RunFolder | None:
        return self._layout.run(run_id) if valid_run_id(run_id) else None


def _network(sandbox: Sandbox | None) -> str:
    if sandbox is not None and sandbox.network == NONE:
        return "none"
    if sandbox is not None and sandbox.router is not None:
        return "each job's own (slirp4netns)"
    why = sandbox.shared_because if sandbox else "there is no sandbox"
    return SHARED_NETWORK + (f": {why}" if why else "")


def _ports(sandbox: Sandbox | None) -> str:
    """By which way ports of jobs are reached, and why."""
    if sandbox is None or (sandbox.router is None and sandbox.network != NONE):
        return "not reached: jobs share the machine's network, where others listen too"
    return "in the network of each job"


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
