"""What running pods use, written down while they run.

One call feeds many runs. Where the cluster has the metrics API, it lists all pods of the site; else each node that runs
something of ours is asked for its own statistics, through the API server. The second reports the cpu time since the
start, the first only how much is used now, which is added up here.

Both need rights that a site does not need otherwise. What our account may not ask is not asked again for a while, and
runs then have no samples; nothing else depends on them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from isthmus._kit.clock import parse_timestamp
from isthmus._kit.quantities import parse_bytes
from isthmus.engines import sampling
from isthmus.engines.base import RunUsage, Stream
from isthmus.engines.metering import Power, estimate
from isthmus.engines.sampling import Reading
from isthmus.errors import IsthmusError
from isthmus.kubernetes.answers import is_denied
from isthmus.kubernetes.client import KubernetesClient

from . import pods
from .logs import LogCopies, part_of
from .parsing import Pod
from .settings import KubernetesSettings

log = logging.getLogger(__name__)

ASK_AGAIN = 600.0
"""Seconds until what was refused is asked for again, and until the metrics API is looked for again."""
_UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3}


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What the cluster says that a container uses: cpu time since its start, or how many cpus are used now."""

    at: datetime
    memory_bytes: int | None
    cpu_seconds: float | None = None
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """What is known of a run by its samples."""

    at: float
    cpu_seconds: float | None
    peak: int | None


class Sampler:
    """Samples the runs of one site."""

    def __init__(
        self,
        client: KubernetesClient,
        settings: KubernetesSettings,
        logs: LogCopies,
        running: Callable[[], Iterable[Pod]],
    ) -> None:
        self._client, self._settings, self._logs, self._running = client, settings, logs, running
        self._folder = settings.folder / "samples"
        self._known: dict[str, Sampled] = {}
        self._looked, self._has_metrics, self._denied_until = 0.0, False, 0.0
        self.power: Mapping[str, Power] = {}

    async def open(self) -> None:
        """Make the folder."""
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)

    async def read(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of a run's journal."""
        return await asyncio.to_thread(part_of, self._path(run_id), offset, size)

    async def remove(self, run_id: str) -> None:
        """Remove the journal of a run."""
        self._known.pop(run_id, None)
        await asyncio.to_thread(self._path(run_id).unlink, missing_ok=True)

    def completed(self, run_id: str, usage: RunUsage | None, elapsed: float | None) -> RunUsage | None:
        """What a run used, with what only its samples say: one that was killed or evicted left no report.

        Of the peak that it reported, files that the kernel kept are taken off, perhaps some that it has freed since:
        what was seen in use stands.
        """
        known = self._known.get(run_id)
        if known is None:
            return usage
        usage = usage or RunUsage(elapsed)
        cpu, peaks = usage.cpu_seconds, (usage.peak_memory_bytes, known.peak)
        return replace(
            usage,
            cpu_seconds=known.cpu_seconds if cpu is None else cpu,
            peak_memory_bytes=max((peak for peak in peaks if peak is not None), default=None),
        )

    def _path(self, run_id: str) -> Path:
        return self._folder / run_id

    async def run(self) -> None:
        """Look at what runs use, again and again."""
        while True:
            await asyncio.sleep(self._settings.sample_seconds)
            running = {seen.name: seen for seen in self._running()}
            if not running or time.monotonic() < self._denied_until:
                continue
            try:
                for name, found in await self._ask(running.values()):
                    if name in running:
                        await self._take(running[name], found)
            except IsthmusError as error:
                if is_denied(error):
                    self._denied_until = time.monotonic() + ASK_AGAIN
                log.info("pods could not be sampled", extra={"error": str(error)})

    async def _ask(self, running: Iterable[Pod]) -> list[tuple[str, ContainerUsage]]:
        if not self._looked or time.monotonic() - self._looked > ASK_AGAIN:
            groups = await self._client.get("/apis", "the APIs of the cluster")
            self._has_metrics = any(group["name"] == "metrics.k8s.io" for group in groups["groups"])
            self._looked = time.monotonic()
        if self._has_metrics:
            path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{self._settings.namespace}/pods"
            selector = f"{pods.SITE}={self._settings.site}"
            return from_metrics(await self._client.get(path, "", {"labelSelector": selector}))
        reported = await asyncio.gather(
            *(self._ask_node(node) for node in {seen.node for seen in running if seen.node})
        )
        return [entry for found in reported for entry in found]

    async def _ask_node(self, node: str) -> list[tuple[str, ContainerUsage]]:
        """One node that does not answer costs only its own samples."""
        path = f"/api/v1/nodes/{node}/proxy/stats/summary"
        try:
            reported = await self._client.get(path, "", {"only_cpu_and_memory": "true"})
        except IsthmusError as error:
            if is_denied(error):
                raise
            log.info("a node does not report what its pods use", extra={"node": node, "error": str(error)})
            return []
        return from_node(reported, self._settings.namespace)

    async def _take(self, run: Pod, seen: ContainerUsage) -> None:
        known, at = self._known.get(run.run_id), seen.at.timestamp()
        if known is None:
            known = await asyncio.to_thread(_last_of, self._path(run.run_id))
        if known is not None and at <= known.at:
            return
        started = run.main.started_at.timestamp() if run.main.started_at else at
        cpu = _cpu_seconds(seen, known, started)
        amounts = (seen.memory_bytes, known.peak if known is not None else None)
        peak = max((amount for amount in amounts if amount is not None), default=None)
        self._known[run.run_id] = Sampled(at, cpu, peak)
        units = {name: ("",) * count for name, count in run.devices.items()}
        joules = estimate(self.power, units, run.milli_cpus / 1000, max(0.0, at - started), cpu or 0.0)
        output = await self._logs.size(run.run_id, Stream.STDOUT)
        reading = Reading(cpu, seen.memory_bytes, joules, estimated=True, output_bytes=output)
        await asyncio.to_thread(sampling.append, self._path(run.run_id), sampling.line(at, reading))


def _cpu_seconds(seen: ContainerUsage, known: Sampled | None, started: float) -> float | None:
    if seen.cpu_seconds is not None or seen.cpus is None:
        return seen.cpu_seconds
    before, since = (known.cpu_seconds or 0.0, known.at) if known else (0.0, started)
    return before + seen.cpus * max(0.0, seen.at.timestamp() - since)


def from_node(reported: Mapping[str, Any], namespace: str) -> list[tuple[str, ContainerUsage]]:
    """Pods by their names, as a kubelet reports them."""
    found = []
    for entry in reported.get("pods") or ():
        main = next((c for c in entry.get("containers") or () if c.get("name") == pods.MAIN), None)
        if main is None or entry["podRef"].get("namespace") != namespace:
            continue
        cpu, memory = main.get("cpu") or {}, main.get("memory") or {}
        nanoseconds, at = cpu.get("usageCoreNanoSeconds"), cpu.get("time") or memory.get("time")
        if at is not None:
            seconds = None if nanoseconds is None else nanoseconds * 1e-9
            found.append(
                (entry["podRef"]["name"], ContainerUsage(parse_timestamp(at), memory.get("workingSetBytes"), seconds))
            )
    return found


def from_metrics(reported: Mapping[str, Any]) -> list[tuple[str, ContainerUsage]]:
    """Pods by their names, as the metrics API reports them."""
    found = []
    for item in reported.get("items") or ():
        main = next((c for c in item.get("containers") or () if c.get("name") == pods.MAIN), None)
        if main is not None:
            usage = main.get("usage") or {}
            memory = parse_bytes(usage["memory"]) if usage.get("memory", "0") != "0" else None
            seen = ContainerUsage(parse_timestamp(item["timestamp"]), memory, cpus=_cpus(usage.get("cpu", "0")))
            found.append((item["metadata"]["name"], seen))
    return found


def _cpus(text: str) -> float:
    unit = _UNITS.get(text[-1:])
    return float(text[:-1]) * unit if unit is not None else float(text)


def _last_of(path: Path) -> Sampled | None:
    """What an earlier control plane of this machine wrote down."""
    words = [line.split() for line in part_of(path, 0, sampling.MAX_BYTES).splitlines()]
    whole = [line for line in words if len(line) == 6]
    if not whole:
        return None
    cpu = whole[-1][1]
    peak = max((int(line[2]) for line in whole if line[2] != b"-"), default=None)
    return Sampled(float(whole[-1][0]), None if cpu == b"-" else float(cpu), peak)
