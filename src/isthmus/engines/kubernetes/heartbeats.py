"""Heartbeats of Nodes that have no kubelet: each has a Lease in kube-node-lease, and somebody must renew it.

Kubernetes' node lifecycle controller declares a Node unknown when its Lease has not changed for the cluster's
node-monitor-grace-period (40 s). A kubelet renews every 10 s. Ours are renewed every 15 s: two may be lost in a row
before it matters, and 300 nodes cost twenty small requests in a second. They are spread over the interval, in bundles,
so that neither side sees a wave.

A renewal is a PUT (see `lease_writes`) with the version of our own last write: a Lease that somebody else changed is
looked at, and left alone if it is not ours. The time in it only grows, whatever our clock does: one that is not newer
is no heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.tasks import Supervised
from isthmus.errors import AlreadyExists, IsthmusError, NotFound, SiteUnavailable
from isthmus.metrics import count_task_failure

from .lease_writes import LeaseAnswer

log = logging.getLogger(__name__)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
BUNDLES = 15
"""Looks per interval: those who are due by then are renewed together."""
GRACE = 40
"""What a Lease says of itself, in seconds; Kubernetes goes by its own settings."""


class Cluster(Protocol):
    """What is needed of a client of an API server."""

    async def get(self, path: str) -> Any:
        """One object."""
        ...

    async def create(self, path: str, obj: Any) -> Any:
        """Make an object."""
        ...

    async def patch(self, path: str, change: Any) -> Any:
        """Merge a change into an object."""
        ...

    async def delete(self, path: str, **options: Any) -> None:
        """Remove an object."""
        ...

    async def list_all(self, path: str, selector: str) -> tuple[list[Any], str]:
        """All objects that have these labels."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...


class Writes(Protocol):
    """Many writes in one go."""

    async def put_all(self, objects: Sequence[tuple[str, Any]]) -> list[LeaseAnswer]:
        """Write whole objects, each if it is still of the version that it names; an answer for each."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...


@dataclass(slots=True)
class _Beat:
    uid: str
    """Of the Node."""
    due: float
    version: str = ""
    """Of our last write of the Lease; empty: none is known."""
    renewed: datetime | None = None
    spread: bool = False
    """Whether its turn has found its place in the interval."""

    def take(self, lease: Mapping[str, Any]) -> None:
        """Go on from what is there."""
        self.version = lease["metadata"]["resourceVersion"]
        renewed = (lease.get("spec") or {}).get("renewTime")
        self.renewed = parse_timestamp(renewed) if renewed else None


class Heartbeats:
    """Renews the Leases of Nodes."""

    def __init__(
        self,
        cluster: Cluster,
        writes: Writes,
        labels: Mapping[str, str],
        seconds: float,
        *,
        allowed: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._cluster, self._writes, self._labels = cluster, writes, labels
        self._seconds, self._allowed, self._now = seconds, allowed, now
        self._beats: dict[str, _Beat] = {}
        self._resting = True
        self._listed = False
        self._task = Supervised("kubernetes-heartbeats", self._run, failed=count_task_failure)
        self.refused: dict[str, str] = {}
        """Nodes whose Lease belongs to somebody else, and a sentence for each."""

    def keep(self, nodes: Mapping[str, str]) -> None:
        """Renew for these Nodes (names and uids) and no others, from now on."""
        for name in [known for known, beat in self._beats.items() if nodes.get(known) != beat.uid]:
            del self._beats[name]
            self.refused.pop(name, None)
        now = time.monotonic()
        for name, uid in nodes.items():
            if name not in self._beats:
                self._beats[name] = _Beat(uid, now)
        self._resting = False
        self._task.start()

    def rest(self) -> None:
        """Renew nothing until asked again."""
        self._resting = True

    async def close(self) -> None:
        """Stop."""
        await self._task.stop()
        await self._writes.close()

    async def remove(self, names: Sequence[str]) -> None:
        """Delete the Leases of Nodes that are gone, as far as they are ours."""
        for name in names:
            self._beats.pop(name, None)
            with suppress(NotFound):
                lease = await self._cluster.get(f"{LEASES}/{name}")
                if self._ours(lease):
                    await self._cluster.delete(f"{LEASES}/{name}", preconditions={"uid": lease["metadata"]["uid"]})

    async def _run(self) -> None:
        while True:
            try:
                if not self._resting:
                    await self._renew_due()
            except IsthmusError as error:
                log.warning("no heartbeats", extra={"error": str(error)})
            await asyncio.sleep(self._seconds / BUNDLES)

    async def _renew_due(self) -> None:
        self._allowed()
        if not self._listed:
            await self._find()
        now = time.monotonic()
        due = {name: beat for name, beat in self._beats.items() if beat.due <= now}
        known = {name: beat for name, beat in due.items() if beat.version}
        leases = [(f"{LEASES}/{name}", self._lease(name, beat)) for name, beat in known.items()]
        answers = await self._writes.put_all(leases) if leases else []
        trouble = ""
        for (name, beat), (_, lease), answer in zip(known.items(), leases, answers, strict=True):
            trouble = self._take(name, beat, lease, answer) or trouble
        if trouble:
            raise SiteUnavailable(trouble)
        for name, beat in due.items():
            if not beat.version and self._beats.get(name) is beat:
                await self._create(name, beat)

    async def _find(self) -> None:
        """Leases that were made before we were started."""
        selector = ",".join(f"{key}={value}" for key, value in self._labels.items())
        for lease in (await self._cluster.list_all(LEASES, selector))[0]:
            if beat := self._beats.get(lease["metadata"]["name"]):
                beat.take(lease)
        self._listed = True

    def _take(self, name: str, beat: _Beat, lease: Mapping[str, Any], answer: LeaseAnswer) -> str:
        """What came of a renewal; a sentence if it was not to be had just now: it stays due."""
        if answer.status in (404, 409):  # deleted or changed by another: looked at at once
            beat.version = ""
        elif answer.status >= 300:
            said = answer.body.get("message") if isinstance(answer.body, dict) else None
            return f"the API server answered {answer.status} to a heartbeat: {said or 'nothing more'}"
        else:
            self._renewed(name, beat, lease, answer.body)
        return ""

    async def _create(self, name: str, beat: _Beat) -> None:
        """Make a Lease, or go on with the one that is there if it is ours."""
        lease = self._lease(name, beat)
        try:
            self._renewed(name, beat, lease, await self._cluster.create(LEASES, lease))
        except AlreadyExists:
            found = await self._cluster.get(f"{LEASES}/{name}")
            if self._ours(found):
                beat.take(found)  # and is due with the next bundle
                return
            self.refused[name] = f"{name}: its Lease in kube-node-lease is not ours; delete it if nobody needs it"
            beat.due = time.monotonic() + self._seconds

    def _renewed(self, name: str, beat: _Beat, lease: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        self.refused.pop(name, None)
        beat.version = written["metadata"]["resourceVersion"]
        beat.renewed = parse_timestamp(lease["spec"]["renewTime"])
        # The first renewals come all at once; the next are spread, and stay so.
        beat.due = time.monotonic() + self._seconds * (1 if beat.spread else random.uniform(0.3, 1))  # noqa: S311
        beat.spread = True

    def _lease(self, name: str, beat: _Beat) -> dict[str, Any]:
        moment = self._now()
        if beat.renewed is not None and moment <= beat.renewed:
            moment = beat.renewed + timedelta(milliseconds=1)
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": "kube-node-lease",
            "labels": dict(self._labels),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": beat.uid}],
        }
        if beat.version:
            metadata["resourceVersion"] = beat.version
        spec = {"holderIdentity": "isthmus", "leaseDurationSeconds": GRACE, "renewTime": micro_time(moment)}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def _ours(self, lease: Mapping[str, Any]) -> bool:
        found = lease["metadata"].get("labels") or {}
        return all(found.get(key) == value for key, value in self._labels.items())


def micro_time(moment: datetime) -> str:
    """A time as Leases have it."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
