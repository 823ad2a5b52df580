"""When nodes are shown, kept and removed: on a cluster in memory, with a real store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.kubernetes.exposing import KubernetesExposure
from isthmus.errors import Invalid, Misconfigured, Unavailable
from isthmus.reconcilers.recording import Recorder
from isthmus.reconcilers.sites.exposing import ABANDON, CONDITION, FINALIZER, ExposureReconciler, no_exposure
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import DEVICE_CLASS, SITE, TENANT
from isthmus.resources.sites import ExposedIn, Site
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership, Sole
from isthmus.store.base import Key, Part, Record, Store
from isthmus.store.opening import open_store
from isthmus.testing.engines import until
from tests.engines.kubernetes.clusters import NODES, FakeCluster

pytestmark = pytest.mark.anyio
KEY = Key("Site", "", "hpc")
Object = dict[str, Any]


def slurm_site(**spec: Any) -> Object:
    return validate(SITE, {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Site",
        "metadata": {"name": "hpc"},
        "spec": {"driver": "slurm", "slurm": {"folder": "/scratch"}, "kubernetes": {"kubeconfig": "/one"}, **spec},
    })  # fmt: skip


class Home:
    """A store with one site, two clusters, and the reconciler between them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sites, self.classes = Informer(store, SITE), Informer(store, DEVICE_CLASS)
        self.clusters = {"/one": FakeCluster(), "/two": FakeCluster()}
        self.leadership: Leadership = Sole()
        self.reconciler = self.make()

    def make(self) -> ExposureReconciler:
        return ExposureReconciler(
            store=self.store, sites=self.sites, classes=self.classes, make_exposure=self.expose,
            leadership=self.leadership, recorder=Recorder(self.store, Informer(self.store, TENANT)),
        )  # fmt: skip

    def expose(self, site: Site, where: ExposedIn, allowed: Callable[[], None]) -> KubernetesExposure:
        cluster = self.clusters[where.kubeconfig or ""]
        return KubernetesExposure(cluster, cluster, site.name, site.identity, heartbeat_seconds=0.15, allowed=allowed)

    async def create(self, **spec: Any) -> None:
        self.sites.note(await self.store.create(SITE, slurm_site(**spec)))

    async def record(self) -> Record:
        return await self.store.get(KEY)

    async def site(self) -> Site:
        return Site.model_validate((await self.record()).obj)

    async def spec(self, **fields: Any) -> None:
        obj = (await self.record()).obj
        self.sites.note(await self.store.update(SITE, {**obj, "spec": {**obj["spec"], **fields}}))

    async def seen(self, *names: str, phase: str = "Ready", **fields: Any) -> None:
        """The site was looked at."""
        obj = (await self.record()).obj
        nodes = [{"name": name, "cpus": 2, "memoryBytes": 2**30, "states": ["IDLE"], **fields} for name in names]
        status = {**obj["status"], "phase": phase, "nodes": nodes, "version": "Slurm 22.05.8"}
        self.sites.note(await self.store.update(SITE, {**obj, "status": status}, Part.STATUS))

    async def look(self) -> float | None:
        return (await self.reconciler.reconcile(KEY)).requeue_after

    async def reported(self) -> tuple[str, str, str]:
        found = [c for c in (await self.site()).status.conditions if c.type == CONDITION]
        return (found[0].status.value, found[0].reason, found[0].message) if found else ("", "", "")


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    store = await open_store(tmp_path / "x.db")
    made = Home(store)
    yield made
    await made.reconciler.close()
    await store.close()


async def test_shown_changed_and_removed(home: Home) -> None:
    await home.create(exposeNodes=True)
    await home.seen("n1", "n2")
    await home.look()
    one = home.clusters["/one"]
    assert sorted(one.nodes()) == ["n1", "n2"]
    assert await home.reported() == ("True", "Shown", "2 nodes")
    site = await home.site()
    assert site.status.exposed_in == ExposedIn(kubeconfig="/one")
    assert site.metadata.finalizers == [FINALIZER]
    before = list(one.writes)
    await home.look()
    assert [path for path in one.writes[len(before) :] if path.startswith(NODES)] == [], "nothing differs"
    await home.seen("n2", states=["IDLE", "DRAIN"])
    await home.look()
    assert {name: node["spec"]["unschedulable"] for name, node in one.nodes().items()} == {"n2": True}
    await home.spec(exposeNodes=False)
    assert await home.look() is None
    assert (one.nodes(), one.leases()) == ({}, {})
    site = await home.site()
    assert (site.status.exposed_in, site.metadata.finalizers, await home.reported()) == (None, None, ("", "", ""))


async def test_nothing_is_done_for_sites_that_do_not_ask(home: Home) -> None:
    await home.create()
    await home.seen("n1")
    assert await home.look() is None
    assert (await home.record()).obj["metadata"].get("finalizers") in (None, [])
    assert home.clusters["/one"].writes == []


async def test_a_site_that_nobody_has_looked_at(home: Home) -> None:
    await home.create(exposeNodes=True)
    assert await home.look() is None
    assert await home.reported() == ("", "", "")
    assert home.clusters["/one"].writes == []


async def test_unknown_is_not_gone(home: Home) -> None:
    await home.create(exposeNodes=True)
    await home.seen("n1")
    await home.look()
    one = home.clusters["/one"]

    async def beat() -> bool:
        return "n1" in one.leases()

    await until(beat, "the first heartbeat")
    await home.seen(phase="Unreachable")
    await home.look()
    assert (await home.reported())[:2] == ("Unknown", "Kept")
    assert list(one.nodes()) == ["n1"]
    heartbeats = home.reconciler._open["hpc"].exposure._heartbeats  # type: ignore[attr-defined]
    assert heartbeats._resting
    await home.seen("n1")
    await home.look()
    assert not heartbeats._resting
    assert (await home.reported())[0] == "True"


async def test_another_cluster(home: Home) -> None:
    """What was shown in the old one goes first; while that does not answer, nothing is forgotten."""
    await home.create(exposeNodes=True)
    await home.seen("n1")
    await home.look()
    one, two = home.clusters["/one"], home.clusters["/two"]
    await home.spec(kubernetes={"kubeconfig": "/two"})
    one.unavailable = "it is away"
    assert await home.look() == 5.0
    status, _, message = await home.reported()
    assert status == "False"
    assert "cannot be removed from the cluster of /one" in message
    assert two.nodes() == {}
    one.unavailable = ""
    await home.look()
    assert (one.nodes(), list(two.nodes())) == ({}, ["n1"])
    assert (await home.site()).status.exposed_in == ExposedIn(kubeconfig="/two")


async def test_a_site_goes_when_its_nodes_are_gone(home: Home) -> None:
    await home.create(exposeNodes=True)
    await home.seen("n1")
    await home.look()
    one = home.clusters["/one"]
    one.unavailable = "it is away"
    deleted = await home.store.delete(KEY)
    assert deleted is not None
    home.sites.note(await home.record())
    await home.look()
    assert (await home.site()).metadata.finalizers == [FINALIZER]
    one.unavailable = ""
    await home.look()
    assert one.nodes() == {}
    assert home.sites.get(KEY) is None
    assert await home.look() is None


async def test_a_site_goes_without_a_cluster_that_is_gone_for_good(home: Home) -> None:
    await home.create(exposeNodes=True)
    await home.seen("n1")
    await home.look()
    home.clusters["/one"].unavailable = "it is away"
    assert await home.store.delete(KEY) is not None
    home.sites.note(await home.record())
    await home.look()
    assert f"kubectl annotate site hpc {ABANDON}=true" in (await home.reported())[2]
    obj = (await home.record()).obj
    home.sites.note(
        await home.store.update(SITE, {**obj, "metadata": {**obj["metadata"], "annotations": {ABANDON: "true"}}})
    )
    assert await home.look() is None
    assert home.sites.get(KEY) is None


async def test_a_foreign_node_of_the_same_name(home: Home) -> None:
    one = home.clusters["/one"]
    foreign = await one.create(NODES, {"metadata": {"name": "n1"}})
    await home.create(exposeNodes=True)
    await home.seen("n1", "n2")
    await home.look()
    status, reason, message = await home.reported()
    assert (status, reason) == ("False", "Refused")
    assert "n1: the cluster has a Node of this name that is not ours" in message
    assert one.nodes()["n1"] == foreign
    await home.spec(exposeNodes=False)
    await home.look()
    assert one.nodes() == {"n1": foreign}


async def test_started_again(home: Home) -> None:
    await home.create(exposeNodes=True)
    await home.seen("n1", "n2")
    await home.look()
    one = home.clusters["/one"]
    uids = {name: node["metadata"]["uid"] for name, node in one.nodes().items()}
    await home.reconciler.close()
    home.reconciler = home.make()
    await home.seen("n2", "n3")
    await home.look()
    now = {name: node["metadata"]["uid"] for name, node in one.nodes().items()}
    assert sorted(now) == ["n2", "n3"]
    assert now["n2"] == uids["n2"]


async def test_killed_between_any_two_writes(home: Home) -> None:
    """Wherever it stops: the next one finds what is there, and in the end all is gone."""
    await home.create(exposeNodes=True)
    await home.seen("n1", "n2")
    one = home.clusters["/one"]
    for allowed in range(3):
        count = 0

        def stop(limit: int = allowed) -> None:
            nonlocal count
            count += 1
            if count > limit:
                raise Unavailable("killed")

        reconciler = home.make()
        reconciler._leadership = Stopping(stop)
        with pytest.raises(Unavailable):
            await reconciler.reconcile(KEY)
        await reconciler.close()
    await home.look()
    assert sorted(one.nodes()) == ["n1", "n2"]
    await home.spec(exposeNodes=False)
    await home.look()
    assert one.nodes() == {}


class Stopping(Leadership):
    """Stops whoever asks whether it may go on."""

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__()
        self._stop = stop

    def check(self) -> None:
        self._stop()


async def test_a_control_plane_without_clusters(home: Home) -> None:
    await home.create(exposeNodes=True)
    await home.seen("n1")
    home.reconciler._make = no_exposure
    assert await home.look() == 5.0
    assert "cannot show the nodes" in (await home.reported())[2]
    with pytest.raises(Misconfigured):
        no_exposure(await home.site(), ExposedIn(), lambda: None)


async def test_a_changed_heartbeat_opens_the_cluster_anew(home: Home) -> None:
    await home.create(exposeNodes=True)
    await home.seen("n1")
    await home.look()
    first = home.reconciler._open["hpc"].exposure
    await home.spec(kubernetes={"kubeconfig": "/one", "heartbeatInterval": "3s"})
    await home.look()
    assert home.reconciler._open["hpc"].exposure is not first


def test_only_slurm_sites_have_nodes_to_show() -> None:
    with pytest.raises(Invalid, match=r"spec.exposeNodes.*remove it, or set driver to slurm"):
        validate(SITE, {"metadata": {"name": "x"}, "spec": {"driver": "local", "exposeNodes": True}})
    assert slurm_site(exposeNodes=True)["spec"]["exposeNodes"] is True
