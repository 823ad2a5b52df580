"""The Kubernetes engine: the contract, put together from its parts.

Readers are served from memory, which one watch keeps fresh. Only submitting, cancelling and collecting reach the
cluster at once. What takes time (files on their way in, a log's last bytes) is done by tasks of the run it is for.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from isthmus._kit.clock import utcnow
from isthmus._kit.crashpoints import reach
from isthmus._kit.locks import KeyedLocks
from isthmus._kit.tasks import SupervisedTasks, Work
from isthmus.engines.base import (
    Capabilities,
    FilePart,
    FileSink,
    FileSource,
    FolderListing,
    Inventory,
    LogReader,
    Observation,
    Run,
    RunDisk,
    Stream,
)
from isthmus.engines.browsing import folder_gone
from isthmus.engines.metering import Power
from isthmus.engines.news import News
from isthmus.errors import (
    AlreadyExists,
    Conflict,
    EngineRefused,
    Forbidden,
    IsthmusError,
    Misconfigured,
    NotFound,
    SiteUnavailable,
    Superseded,
)
from isthmus.kubernetes import kubeconfigs
from isthmus.kubernetes.client import KubernetesClient
from isthmus.metrics import count_task_failure
from isthmus.resources.deviceclasses import DeviceClass, KubernetesDevice
from isthmus.resources.sites import Capacity

from . import inventories, parsing, pods, records, wrapping
from .executing import execute
from .logs import LogCopies
from .parsing import Pod
from .pod_folders import FolderOfPod
from .pod_watching import PodWatcher
from .reading import PodReader
from .sampling import Sampler
from .settings import KubernetesSettings
from .settling import KnownPod, PodSettler
from .staging import StagedArchives
from .tombstones import Tombstones

log = logging.getLogger(__name__)

_ALIVE = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
"""Pods that take room on a node."""


class KubernetesEngine:
    """Runs jobs as pods of a Kubernetes cluster."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self.capabilities = Capabilities(
            queues=True, images=True, environments=True, samples=True, needs_image=settings.image is None
        )
        self.client = KubernetesClient(_access(settings), settings.request_seconds)
        self._pods = f"/api/v1/namespaces/{settings.namespace}/pods"
        self._jobs = f"/apis/batch/v1/namespaces/{settings.namespace}/jobs"
        self._selector = f"{pods.SITE}={settings.site}"
        self._known: dict[str, KnownPod] = {}
        self._devices: dict[str, KubernetesDevice] = {}
        self.tasks = SupervisedTasks(failed=count_task_failure)
        self._logs = LogCopies(self.client, settings.folder / "logs", self.tasks)
        self._staging = StagedArchives(self.client, settings.folder / "staging", settings.max_output_bytes)
        self._sampler = Sampler(self.client, settings, self._logs, self._running)
        self._settler = PodSettler(self.client, self._logs, self._sampler, self._pods, self._jobs)
        self._watcher = PodWatcher(
            self.client, self._pods, self._selector, settings.watch_seconds,
            listed=self._on_list, changed=self._on_change,
        )  # fmt: skip
        self._news = News()
        self._forgotten: set[str] = set()
        """Removed by us, and perhaps not yet gone: what is heard of them is no news."""
        self._submitting = KeyedLocks()
        self._tombstones = Tombstones(self.client, settings, self._pods, self._jobs)

    async def open(self) -> None:
        """Connect, and find the runs that were started earlier."""
        reported = await self.client.get("/version")
        if inventories.version_of(reported) < inventories.OLDEST:
            raise Misconfigured(f"this cluster is {reported.get('gitVersion')}; Isthmus needs Kubernetes 1.20 or later")
        await self._logs.open()
        await self._staging.open()
        jobs, _ = await self.client.list_all(self._jobs, self._selector)
        for obj in jobs:
            self._remember(obj)
        await self._watcher.list()
        self.tasks.start("kubernetes-watcher", self._watcher.run)
        await self._sampler.open()
        self.tasks.spawn("kubernetes-sampler", self._sampler.run, of=self._settings.site)

    def _remember(self, obj: dict[str, Any]) -> None:
        """A run, by its Job."""
        notes = obj["metadata"].get("annotations") or {}
        run_id = obj["metadata"]["labels"].get(pods.RUN, "")
        if not pods.RUN_ID.fullmatch(run_id):
            return
        if self._tombstones.read(run_id, obj):
            self._forgotten.add(run_id)
            return
        known = self._known.setdefault(run_id, KnownPod(run_id, self._engine_id(run_id)))
        known.has_job, known.cancelled = True, pods.CANCELLED in notes
        if pods.FINAL in notes:
            try:
                known.final = records.load(notes[pods.FINAL])
            except (KeyError, TypeError, ValueError) as error:  # somebody changed it: it is found out again
                log.warning("the end of a run cannot be read", extra={"run": run_id, "error": repr(error)})

    async def close(self) -> None:
        """Let go. Runs go on."""
        await self.tasks.close()
        await self._logs.close()
        self._news.close()
        await self.client.close()

    async def probe(self, classes: Sequence[DeviceClass]) -> Inventory:
        """The nodes; the classes are remembered for later runs."""
        self._devices = {c.name: c.spec.kubernetes for c in classes if c.spec.kubernetes is not None}
        power = {c.name: c.spec.power for c in classes if c.spec.power is not None}
        models = {name: Power(model.idle_watts, model.busy_watts) for name, model in power.items()}
        self._sampler.power = self._settler.power = models
        reported = await self.client.get("/version")
        nodes, _ = await self.client.list_all("/api/v1/nodes", "")
        for run_id in await self._tombstones.clear(utcnow()):
            self._forgotten.add(run_id)
            self._known.pop(run_id, None)
        return inventories.inventory(reported, nodes, self._devices, await self._others())

    async def _others(self) -> Capacity | None:
        """What pods that are not of this site ask for; None where Isthmus may not see them."""
        try:
            found, _ = await self.client.list_all("/api/v1/pods", f"{pods.SITE}!={self._settings.site}", _ALIVE)
        except IsthmusError as error:
            log.info("others' pods cannot be seen", extra={"error": str(error)})
            return None
        return inventories.requested(found, self._devices)

    # Submitting

    def check(self, run: Run) -> None:
        """Refuse what can never work here."""
        if not pods.RUN_ID.fullmatch(run.id):
            raise EngineRefused(f"{run.id!r} is not the id of a run: it must be a uid, a dot and a number.")
        if run.image is None and self._settings.image is None:
            raise EngineRefused("This site has no default image. Name one with image, or choose another site.")
        if not run.command and run.script is None:
            raise EngineRefused("There is neither a command nor a script to run.")
        if run.nodes > 1:
            raise EngineRefused("A run on Kubernetes is one pod on one node; ask for one node, or choose another site.")
        for name in run.devices:
            if name not in self._devices:
                raise EngineRefused(f"Device class {name} does not say how Kubernetes asks for it (spec.kubernetes).")
        pods.pod(run, self._settings, self._devices, stage=False)

    async def submit(self, run: Run, files: FileSource | None = None) -> Observation:
        """Create the pod and its Job, or find them if they were created before."""
        async with self._submitting.hold(run.id):
            return await self._submit(run, files)

    async def _submit(self, run: Run, files: FileSource | None) -> Observation:
        known = self._known.get(run.id)
        if known is None or (known.pod is None and known.final is None and not known.gone):
            self.check(run)
            staged = files is not None and bool(files.files)
            if files is not None and staged:
                await self._staging.pack(run.id, files)
            reach("submit:begin")
            obj = pods.pod(run, self._settings, self._devices, stage=staged, taken_over=not run.placed_here)
            made = await self._create(self._pods, obj, run.id)
            if await self._tombstones.has(run.id, made):
                await self._staging.drop(run.id)
                raise Superseded(f"Run {run.id} has ended under another control plane, and was forgotten.")
            known = self._take(run.id, made)
        reach("submit:created")
        if not known.has_job and known.final is None:
            await self._make_job(known)
        reach("submit:noted")
        return known.observation()

    async def _create(self, path: str, obj: Any, run_id: str) -> dict[str, Any]:
        """Make an object of a run, or adopt it; one of the same name that is not the run's is never touched."""
        made: dict[str, Any]
        try:
            made = await self.client.create(path, obj)
        except AlreadyExists:
            made = await self.client.get(f"{path}/{pods.name_of(run_id)}")
            if not pods.is_ours(made, run_id, self._settings.site):
                raise EngineRefused(
                    f"{obj['kind']} {pods.name_of(run_id)} in namespace {self._settings.namespace} is not ours; "
                    "an administrator must remove or rename it."
                ) from None
        except (NotFound, Forbidden):
            reported = f"the cluster has no namespace {self._settings.namespace}, or is removing it; create it first"
            raise SiteUnavailable(reported) from None
        except Conflict as error:  # of something that the cluster keeps beside it, a quota for one
            raise SiteUnavailable(f"the cluster could not make it just now: {error.message}") from None
        return made

    async def _make_job(self, known: KnownPod) -> None:
        if known.pod is not None and known.pod.barred:
            return
        try:
            made = await self._create(self._jobs, pods.job(known.run_id, self._settings), known.run_id)
        except EngineRefused:
            self._forgotten.add(known.run_id)
            self._known.pop(known.run_id, None)
            await self._delete_pod(known.run_id, 1)
            raise
        self._remember(made)

    def _take(self, run_id: str, obj: dict[str, Any]) -> KnownPod:
        """A pod that the API server reported just now."""
        seen = parsing.pod(obj)
        assert seen is not None
        known = self._known.setdefault(run_id, KnownPod(run_id, self._engine_id(run_id)))
        known.since = time.monotonic()
        if known.pod is None:  # otherwise the watch was quicker, and knows better
            self._look(known, seen)
        return known

    def _engine_id(self, run_id: str) -> str:
        return f"{self._settings.namespace}/{pods.name_of(run_id)}"

    # Watching

    def _on_list(self, found: dict[str, Pod], begun: float) -> None:
        """All pods at one moment: also says which are gone."""
        for seen in found.values():
            self._on_change("ADDED", seen)
        there = {seen.run_id for seen in found.values() if not seen.inert}
        for known in list(self._known.values()):
            if known.final is None and known.run_id not in there and known.since < begun:
                self._lose(known)

    def _on_change(self, kind: str, seen: Pod) -> None:
        if seen.inert or seen.name != pods.name_of(seen.run_id):
            return  # made by the Job in place of one that was lost: it never runs
        if seen.run_id in self._forgotten:
            if kind == "DELETED":
                self._forgotten.discard(seen.run_id)
            return
        known = self._known.setdefault(seen.run_id, KnownPod(seen.run_id, self._engine_id(seen.run_id)))
        known.since = time.monotonic()
        self._look(known, seen)
        if kind == "DELETED" and known.final is None:
            self._lose(known)

    def _lose(self, known: KnownPod) -> None:
        known.gone = True
        self._start("settle", known, lambda: self._settle(known))

    def _look(self, known: KnownPod, seen: Pod) -> None:
        """Take over what is new of a pod, and start what is to be done about it."""
        before, known.pod = known.pod, seen
        if seen.barred:
            self._tombstones.note_bar(seen)
        if seen.barred and known.final is None:
            known.final = self._settler.barred(known)
            self._news.notify({known.run_id})
        if known.final is not None:
            return
        path = f"{self._pods}/{seen.name}"
        if not known.has_job and not seen.barred and known.run_id not in self._submitting:
            self._start("job", known, lambda: self._complete(known))  # a control plane died between the two
        if known.over:
            self._start("settle", known, lambda: self._settle(known))
        elif seen.main.state == "running":
            self._logs.follow(known.run_id, Stream.STDOUT, path, pods.MAIN, at_once=seen.deleting)
            errors = seen.containers.get(pods.ERRORS)
            if errors is not None and errors.state == "running":
                self._logs.follow(known.run_id, Stream.STDERR, path, pods.ERRORS, at_once=seen.deleting)
        elif (stage := seen.containers.get(pods.STAGE)) is not None and stage.state == "running":
            self._start("stage", known, lambda: self._stage(known, path))
        else:
            self._watch_start(known, seen)
        if before is None or parsing.going_on(before, "") != parsing.going_on(seen, ""):
            self._news.notify({known.run_id})

    def _watch_start(self, known: KnownPod, seen: Pod) -> None:
        """A pod whose image cannot be had is given up, at once or after a while."""
        reported, final = parsing.stuck(seen)
        if not reported:
            known.stuck_since = None
            return
        known.stuck_since = known.stuck_since or time.monotonic()
        if final or time.monotonic() - known.stuck_since > self._settings.start_seconds:
            self._start("settle", known, lambda: self._give_up(known, reported))

    def _start(self, name: str, known: KnownPod, work: Work) -> None:
        """A task of a run; one of each name at a time. One that fails is tried again while the run is known."""

        async def wanted() -> None:
            if self._known.get(known.run_id) is known:
                await work()

        self.tasks.spawn(f"kubernetes-{name}", wanted, of=known.run_id)

    async def _complete(self, known: KnownPod) -> None:
        """Make the Job of a run whose pod alone was made."""
        if known.has_job or known.final is not None:
            return
        try:
            await self._make_job(known)
        except EngineRefused as error:
            log.warning("a run was given up", extra={"run": known.run_id, "error": str(error)})

    async def _settle(self, known: KnownPod, failure: str = "") -> None:
        await self._settler.until_settled(known, failure)
        await self._staging.drop(known.run_id)
        self._logs.wake(known.run_id)
        self._news.notify({known.run_id})

    async def _give_up(self, known: KnownPod, failure: str) -> None:
        await self._settle(known, failure)
        await self._delete_pod(known.run_id, 1)

    async def _stage(self, known: KnownPod, path: str) -> None:
        """Send the files; a run whose files are not on this machine cannot begin."""
        if not self._staging.archive(known.run_id).exists():
            await self._give_up(known, "the files sent along are no longer on the control plane's machine")
            return
        while known.final is None and not known.over:
            try:
                await self._staging.send(known.run_id, path)
                return
            except NotFound:
                return  # it is over, or begins already
            except EngineRefused as error:
                await self._give_up(known, f"its files could not be unpacked: {error.message}")
            except SiteUnavailable as error:
                log.warning("files could not be sent", extra={"run": known.run_id, "error": str(error)})
                await asyncio.sleep(1)

    async def observe(self, run_id: str) -> Observation | None:
        """What is known of a run; the cluster is asked where the watch is not sure."""
        known = self._known.get(run_id)
        if known is not None:
            return known.observation()
        if self._watcher.synced or run_id in self._forgotten or not pods.RUN_ID.fullmatch(run_id):
            return None
        try:
            return self._take(run_id, await self.client.get(f"{self._pods}/{pods.name_of(run_id)}")).observation()
        except NotFound:
            return None

    def changes(self) -> AsyncIterator[set[str]]:
        """Ids of runs that changed, as the watch shows it."""
        return self._news.subscribe(lambda: set(self._known))

    # Ending

    async def cancel(self, run_id: str, *, grace: float = 5.0) -> None:
        """End the program by a signal inside its pod; a pod that has not begun is deleted, an unknown run barred."""
        known = self._known.get(run_id)
        if known is None:
            if not pods.RUN_ID.fullmatch(run_id):
                return
            obj = await self._create(self._pods, pods.bar(run_id, self._settings), run_id)
            known = self._take(run_id, obj)
        if known.final is not None:
            return
        if not known.cancelled:
            change = {"metadata": {"annotations": {pods.CANCELLED: "true"}}}
            if known.has_job:
                await self.client.patch(f"{self._jobs}/{pods.name_of(run_id)}", change)
            known.cancelled = True
        if known.pod is not None and known.pod.main.state == "running":
            try:
                path = f"{self._pods}/{known.pod.name}"
                await execute(self.client, path, pods.MAIN, wrapping.terminate(grace))
                return
            except IsthmusError as error:
                log.info("a run could not be asked to end", extra={"run": run_id, "error": str(error)})
        if not known.over:
            await self._delete_pod(run_id, max(1, math.ceil(grace)))

    async def _delete_pod(self, run_id: str, grace: int) -> None:
        path = f"{self._pods}/{pods.name_of(run_id)}"
        await self.client.delete(path, gracePeriodSeconds=grace)

    async def measure(self) -> Mapping[str, RunDisk]:
        """What the copies of logs take here; folders of pods are the cluster's."""
        try:
            return {run_id: RunDisk(size, 0) for run_id, size in (await self._logs.measure()).items()}
        except OSError as error:
            raise SiteUnavailable(f"The copies of logs cannot be read: {error}.") from error

    async def collect(self, run_id: str, patterns: Sequence[str], sink: FileSink) -> list[str]:
        """Bring back the files that match."""
        known = await self._find(run_id)
        if known.final is None:
            raise EngineRefused(f"Run {run_id} has not ended; its files are collected after the end.")
        gone = [f"The working folder of run {run_id} is no longer there."]
        if not patterns or known.tidied:
            return gone if patterns else []
        seen = known.pod
        if seen is None or known.gone or seen.containers.get(pods.FILES, parsing.Container()).state != "running":
            return gone
        try:
            return await self._staging.collect(f"{self._pods}/{seen.name}", patterns, sink)
        except NotFound:
            return gone

    async def tidy(self, run_id: str) -> None:
        """Let the helper of a run that is over end: the node then frees the working folder."""
        known = self._known.get(run_id)
        if known is None or known.final is None or known.tidied:
            return
        seen = known.pod
        if seen is not None and not known.gone and pods.FILES in seen.names and seen.phase == "Running":
            try:
                await execute(self.client, f"{self._pods}/{seen.name}", pods.FILES, wrapping.release())
            except (NotFound, EngineRefused) as error:
                log.info("a helper had ended already", extra={"run": run_id, "error": str(error)})
        known.tidied = True

    async def forget(self, run_id: str) -> None:
        """Remove everything of a run that is over."""
        known = self._known.get(run_id)
        if known is None or known.final is None:
            return
        if known.pod is not None and (known.pod.taken_over or known.pod.barred):
            await self.tidy(run_id)
            self._forgotten.add(run_id)
            await self._tombstones.keep(known, utcnow())
        else:
            await self._remove(known)
        await self._logs.remove(run_id)
        await self._sampler.remove(run_id)
        self._known.pop(run_id, None)

    async def _remove(self, known: KnownPod) -> None:
        if known.pod is not None and not known.gone:
            self._forgotten.add(known.run_id)
        if known.has_job:
            path = f"{self._jobs}/{pods.name_of(known.run_id)}"
            await self.client.delete(path, propagationPolicy="Background")
        if known.pod is not None and not (known.pod.owned or known.gone):
            await self._delete_pod(known.run_id, 1)

    # Logs

    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Part of a log."""
        await self._find_log(run_id, stream)
        return await self._logs.read(run_id, stream, offset, size)

    async def read_samples(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of what was written down of a run while it ran."""
        await self._find(run_id)
        return await self._sampler.read(run_id, offset, size)

    async def list_files(self, run_id: str, most: int) -> FolderListing:
        """What is in the folder of the job."""
        return await (await self._folder(run_id)).list_files(most)

    async def read_file(self, run_id: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a file of the job."""
        return await (await self._folder(run_id)).read_file(path, offset, size)

    async def _folder(self, run_id: str) -> FolderOfPod:
        known = await self._find(run_id)
        if known.pod is None or known.gone or known.tidied:
            raise folder_gone()
        return FolderOfPod(self.client, f"{self._pods}/{known.pod.name}", known.pod)

    async def log_size(self, run_id: str, stream: Stream) -> int:
        """How long a log is now."""
        await self._find_log(run_id, stream)
        return await self._logs.size(run_id, stream)

    async def wait_log(self, run_id: str, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Wait for a log to grow or the run to end."""
        known = await self._find(run_id)
        if known.final is None:
            await self._logs.wait(run_id, stream, offset, timeout)

    async def open_to_read(self) -> LogReader:
        """A reader of the logs of pods."""
        reader = PodReader(self.client, self._settings)
        try:
            await reader.open()
        except BaseException:
            await reader.close()
            raise
        return reader

    def _running(self) -> list[Pod]:
        found = (known.pod for known in self._known.values() if known.final is None and not known.gone)
        return [seen for seen in found if seen is not None and seen.main.state == "running"]

    async def _find_log(self, run_id: str, stream: Stream) -> None:
        """A run that ended under another control plane has its log in its pod."""
        known = await self._find(run_id)
        seen, container = known.pod, pods.MAIN if stream is Stream.STDOUT else pods.ERRORS
        if known.final is not None and seen is not None and not known.gone and container in seen.names:
            await self._logs.fetch(run_id, stream, f"{self._pods}/{seen.name}", container)

    async def _find(self, run_id: str) -> KnownPod:
        if run_id not in self._known:
            await self.observe(run_id)
        known = self._known.get(run_id)
        if known is None or (known.pod is not None and known.pod.barred):
            raise NotFound(f"This site has no run {run_id[:100]!r}.")
        return known


def _access(settings: KubernetesSettings) -> kubeconfigs.ClusterAccess:
    if settings.kubeconfig is not None:
        return kubeconfigs.load(settings.kubeconfig, settings.context)
    return kubeconfigs.own(settings.server or kubeconfigs.IN_CLUSTER)
