"""Shows the nodes of a site as Nodes of a cluster: one list of ours, then only what differs is written.

A name that a foreign Node has is refused by the API server itself when ours is created; foreign Nodes are not even
read. Writes carry the version that was read, deletions the uid: what changed hands meanwhile is not touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from isthmus._kit.clock import utcnow
from isthmus.engines.exposing import Shown
from isthmus.errors import AlreadyExists, Conflict, EngineRefused, NotFound
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.sites import SiteNode

from .exposed_nodes import Exposed, NodeChange, Object, plan
from .heartbeats import Cluster, Heartbeats, Writes

NODES = "/api/v1/nodes"
AT_ONCE = 8
T = TypeVar("T")


class KubernetesExposure:
    """The nodes of one site in one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        writes: Writes,
        site: str,
        identity: str,
        *,
        heartbeat_seconds: float = 15.0,
        allowed: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._cluster, self._site, self._identity, self._allowed, self._now = cluster, site, identity, allowed, now
        labels = Exposed(site, identity).labels
        self._heartbeats = Heartbeats(cluster, writes, labels, heartbeat_seconds, allowed=allowed, now=now)

    async def show(self, version: str, nodes: Sequence[SiteNode], classes: Sequence[DeviceClass]) -> Shown:
        """Make the cluster show these nodes and no others of the site."""
        exposed = Exposed(self._site, self._identity, version)
        present, _ = await self._cluster.list_all(NODES, exposed.selector)
        wanted = plan(exposed, nodes, classes, present, self._now())
        gone = [obj["metadata"]["name"] for obj in wanted.delete]
        await self._each(wanted.delete, self._delete)
        reported = [*wanted.refused, *await self._each(wanted.change, self._change)]
        made = await self._each(wanted.create, self._create)
        reported += [answer for answer in made if isinstance(answer, str)]
        known = {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in present}
        known |= {obj["metadata"]["name"]: obj["metadata"]["uid"] for obj in made if isinstance(obj, dict)}
        self._heartbeats.keep({name: uid for name, uid in known.items() if name not in gone})
        refused = [*(answer for answer in reported if answer), *self._heartbeats.refused.values()]
        return Shown(len(known) - len(gone), tuple(sorted(refused)))

    def rest(self) -> None:
        """Stop the heartbeats: Kubernetes will say by itself that nothing is known."""
        self._heartbeats.rest()

    async def remove(self) -> None:
        """Delete every Node of the site."""
        self._heartbeats.rest()
        present, _ = await self._cluster.list_all(NODES, Exposed(self._site, self._identity).selector)
        await self._each(present, self._delete)

    async def close(self) -> None:
        """Let go."""
        await self._heartbeats.close()
        await self._cluster.close()

    async def _each(self, items: Sequence[T], act: Callable[[T], Awaitable[Any]]) -> list[Any]:
        """Do something with every item, so many at once; the first error that is not of one node alone ends it."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(item: T) -> Any:
            async with slots:
                self._allowed()
                return await act(item)

        found = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
        for answer in found:
            if isinstance(answer, BaseException):
                raise answer
        return found

    async def _create(self, node: Object) -> Object | str:
        name = node["metadata"]["name"]
        try:
            made: Object = await self._cluster.create(NODES, node)
        except AlreadyExists:
            return f"{name}: the cluster has a Node of this name that is not ours; rename or remove one of the two"
        except EngineRefused as error:
            return f"{name}: {error.message}"
        return made

    async def _change(self, change: NodeChange) -> str | None:
        path = f"{NODES}/{change.name}"
        try:
            if change.main is not None:
                await self._cluster.patch(path, change.main)
            if change.status is not None:
                await self._cluster.patch(f"{path}/status", change.status)
        except (Conflict, NotFound):
            return None  # another changed it: compared again with the next look
        except EngineRefused as error:
            return f"{change.name}: {error.message}"
        return None

    async def _delete(self, node: Object) -> None:
        name = node["metadata"]["name"]
        try:
            await self._cluster.delete(f"{NODES}/{name}", preconditions={"uid": node["metadata"]["uid"]})
        except Conflict:
            return  # another Node took the name: it is not ours
        await self._heartbeats.remove([name])
