"""Reading logs of pods without working in the cluster: nothing is written there, and nothing here that lasts.

A control plane that does not lead copies what it is asked for into a folder of its own, which goes when it is closed.
What the leader has copied on the same machine is read where the pod is gone.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import FilePart, FolderListing, Stream
from isthmus.errors import NotFound
from isthmus.kubernetes.client import KubernetesClient
from isthmus.metrics import count_task_failure

from . import parsing, pods
from .logs import LogCopies, part_of
from .parsing import Pod
from .pod_folders import FolderOfPod
from .sampling import Sampler
from .settings import KubernetesSettings

FRESH_SECONDS = 1.0
"""So long a look at a pod serves all who ask for its log."""
MOST_PODS = 1000


class PodReader:
    """Reads logs of the pods of one site."""

    def __init__(self, client: KubernetesClient, settings: KubernetesSettings) -> None:
        self._client, self._settings = client, settings
        self._pods = f"/api/v1/namespaces/{settings.namespace}/pods"
        self._tasks = SupervisedTasks(failed=count_task_failure)
        self._place = tempfile.TemporaryDirectory(prefix="isthmus-logs-")
        own = replace(settings, folder=Path(self._place.name))
        self._logs = LogCopies(client, own.folder / "logs", self._tasks)
        self._sampler = Sampler(client, own, self._logs, self._running)
        self._seen: dict[str, tuple[float, Pod]] = {}
        self._whole: set[tuple[str, Stream]] = set()

    async def open(self) -> None:
        """Connect; raises SiteUnavailable."""
        await self._client.get("/version")
        await self._logs.open()
        await self._sampler.open()
        self._tasks.spawn("kubernetes-sampler", self._sampler.run, of=self._settings.site)

    async def close(self) -> None:
        """End, and remove the copies."""
        await self._tasks.close()
        await self._logs.close()
        await self._client.close()
        await asyncio.to_thread(self._place.cleanup)

    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Part of a log."""
        if not await self._copied(run_id, stream):
            return await asyncio.to_thread(part_of, self._leaders(run_id, stream), offset, size)
        return await self._logs.read(run_id, stream, offset, size)

    async def log_size(self, run_id: str, stream: Stream) -> int:
        """How long a log is now."""
        if not await self._copied(run_id, stream):
            return self._leaders(run_id, stream).stat().st_size
        return await self._logs.size(run_id, stream)

    async def wait_log(self, run_id: str, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Wait for a log to grow; that of a run that is over does not."""
        if await self._copied(run_id, stream) and not self._seen[run_id][1].over:
            await self._logs.wait(run_id, stream, offset, timeout)

    async def read_samples(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of what was written down of a run: by the leader on this machine, or here since it was first read."""
        leaders = self._settings.folder / "samples" / run_id
        if pods.RUN_ID.fullmatch(run_id) and leaders.exists():
            return await asyncio.to_thread(part_of, leaders, offset, size)
        await self._look(run_id)
        return await self._sampler.read(run_id, offset, size)

    async def list_files(self, run_id: str, most: int) -> FolderListing:
        """What is in the folder of the job."""
        return await (await self._folder(run_id)).list_files(most)

    async def read_file(self, run_id: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a file of the job."""
        return await (await self._folder(run_id)).read_file(path, offset, size)

    async def _folder(self, run_id: str) -> FolderOfPod:
        seen = await self._look(run_id)
        return FolderOfPod(self._client, f"{self._pods}/{seen.name}", seen)

    async def _copied(self, run_id: str, stream: Stream) -> bool:
        """Have a copy of a pod's log, as far as it has come; False if only the leader's copy is left."""
        container = pods.MAIN if stream is Stream.STDOUT else pods.ERRORS
        try:
            seen = await self._look(run_id)
        except NotFound:
            if pods.RUN_ID.fullmatch(run_id) and self._leaders(run_id, stream).exists():
                return False
            raise
        path = f"{self._pods}/{seen.name}"
        if container not in seen.names:
            return True
        if seen.over:
            if (run_id, stream) not in self._whole:
                await self._logs.finish(run_id, stream, path, container)
                self._whole.add((run_id, stream))
        elif seen.main.state == "running":
            self._logs.follow(run_id, stream, path, container, at_once=True)
        return True

    async def _look(self, run_id: str) -> Pod:
        """The pod of a run, seen a moment ago; one that is over will not change."""
        now = time.monotonic()
        at, seen = self._seen.get(run_id, (0.0, None))
        if seen is not None and (seen.over or now - at < FRESH_SECONDS):
            return seen
        if not pods.RUN_ID.fullmatch(run_id):
            raise NotFound(f"This site has no run {run_id[:100]!r}.")
        obj = await self._client.get(f"{self._pods}/{pods.name_of(run_id)}")
        seen = parsing.pod(obj) if pods.is_ours(obj, run_id, self._settings.site) else None
        if seen is None or seen.barred:
            raise NotFound(f"This site has no run {run_id[:100]!r}.")
        while len(self._seen) >= MOST_PODS:
            self._seen.pop(next(iter(self._seen)))
        self._seen[run_id] = now, seen
        return seen

    def _running(self) -> list[Pod]:
        return [seen for _, seen in self._seen.values() if seen.main.state == "running"]

    def _leaders(self, run_id: str, stream: Stream) -> Path:
        return self._settings.folder / "logs" / f"{run_id}.{stream.value}"
