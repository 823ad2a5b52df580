"""Names that stay taken after their runs were forgotten.

A control plane that is stopped before it creates the pod of a run may wake up when another one has created it, and the
run has ended and was forgotten. Nothing at the API server makes the creation of a pod depend on who leads: its name is
taken, or it is not. So two sorts of pods stay when their runs are forgotten: those of runs that another control plane
placed, and those that bar a run. They are over, or never begin, and take nothing of a node. Their Job says that they
were forgotten; it goes after a week, and they with it. A pod that bars a run which nobody forgot has no Job: it goes a
week after it was made.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus.errors import AlreadyExists, NotFound
from isthmus.kubernetes.client import KubernetesClient

from . import pods
from .parsing import Pod
from .settings import KubernetesSettings
from .settling import KnownPod

KEPT = timedelta(days=7)
"""How long a control plane may be stopped and still do no harm."""


class Tombstones:
    """The forgotten runs of one site whose names stay taken."""

    def __init__(self, client: KubernetesClient, settings: KubernetesSettings, pods_path: str, jobs_path: str) -> None:
        self._client, self._settings, self._pods, self._jobs = client, settings, pods_path, jobs_path
        self._since: dict[str, datetime] = {}
        self._bars: dict[str, datetime] = {}

    def read(self, run_id: str, job: dict[str, Any]) -> bool:
        """Whether this Job says that its run was forgotten."""
        note = (job["metadata"].get("annotations") or {}).get(pods.FORGOTTEN)
        if note is None:
            return False
        try:
            self._since[run_id] = parse_timestamp(note)
        except ValueError:  # somebody changed it
            self._since[run_id] = parse_timestamp(job["metadata"]["creationTimestamp"])
        return True

    def note_bar(self, seen: Pod) -> None:
        """A pod bars a run."""
        try:
            self._bars[seen.run_id] = parse_timestamp(seen.created)
        except ValueError:  # the server reports no time: it is asked again at the next start
            self._bars.pop(seen.run_id, None)

    async def has(self, run_id: str, pod: dict[str, Any]) -> bool:
        """Whether a pod that was found in place of a new one is of a run that was forgotten."""
        metadata = pod["metadata"]
        if pods.TAKEN_OVER not in (metadata.get("annotations") or {}) and pods.BARRED not in metadata["labels"]:
            return False
        try:
            return self.read(run_id, await self._client.get(f"{self._jobs}/{pods.name_of(run_id)}"))
        except NotFound:
            return False

    async def keep(self, known: KnownPod, now: datetime) -> None:
        """Keep the name of a run that is over."""
        path = f"{self._jobs}/{pods.name_of(known.run_id)}"
        note = {"metadata": {"annotations": {pods.FORGOTTEN: timestamp(now)}}}
        if known.gone:  # its pod was removed by others: the name needs another one
            await self._client.delete(path, propagationPolicy="Background")
            await self._make(self._pods, pods.bar(known.run_id, self._settings))
        job = pods.job(known.run_id, self._settings)
        job["metadata"] |= note["metadata"]
        if not await self._make(self._jobs, job):
            await self._client.patch(path, note)
        self._since[known.run_id] = now
        self._bars.pop(known.run_id, None)

    async def _make(self, path: str, obj: dict[str, Any]) -> bool:
        try:
            await self._client.create(path, obj)
        except AlreadyExists:
            return False
        return True

    async def clear(self, now: datetime) -> list[str]:
        """Give back the names that nobody can be about to use any more; those of runs that were only barred."""
        barred = [run_id for run_id, since in self._bars.items() if now - since > KEPT and run_id not in self._since]
        for run_id in barred:
            await self._client.delete(f"{self._pods}/{pods.name_of(run_id)}", gracePeriodSeconds=0)
            del self._bars[run_id]
        for run_id in [run_id for run_id, since in self._since.items() if now - since > KEPT]:
            await self._client.delete(f"{self._jobs}/{pods.name_of(run_id)}", propagationPolicy="Background")
            del self._since[run_id]
        return barred
