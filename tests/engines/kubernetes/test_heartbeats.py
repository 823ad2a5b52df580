"""Leases: renewed for ours, given up where they are another's, never older than before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from isthmus.engines.kubernetes.heartbeats import LEASES, Heartbeats, micro_time
from isthmus.errors import SiteUnavailable
from isthmus.testing.engines import until

from .clusters import FakeCluster

pytestmark = pytest.mark.anyio
LABELS = {"isthmus.dev/site": "mine"}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def heartbeats(cluster: FakeCluster) -> AsyncIterator[Heartbeats]:
    made = Heartbeats(cluster, cluster, LABELS, 0.15)
    yield made
    await made.close()
    assert cluster.closed == 1


async def renewals(cluster: FakeCluster, name: str, count: int) -> None:
    start = len(cluster.writes)

    async def renewed() -> bool:
        return cluster.writes[start:].count(f"{LEASES}/{name}") >= count

    await until(renewed, f"{count} heartbeats of {name}")


async def test_made_renewed_and_left(cluster: FakeCluster, heartbeats: Heartbeats) -> None:
    heartbeats.keep({"n1": "u1", "n2": "u2"})
    await renewals(cluster, "n1", 3)
    lease = cluster.leases()["n1"]
    assert lease["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert lease["metadata"]["labels"] == LABELS
    heartbeats.keep({"n2": "u2"})
    await renewals(cluster, "n2", 1)
    after = cluster.leases()["n1"]
    await renewals(cluster, "n2", 3)
    assert cluster.leases()["n1"] == after
    await heartbeats.remove(["n1"])
    assert list(cluster.leases()) == ["n2"]


async def test_resting(cluster: FakeCluster, heartbeats: Heartbeats) -> None:
    heartbeats.keep({"n1": "u1"})
    await renewals(cluster, "n1", 1)
    heartbeats.rest()
    await heartbeats._renew_due()  # whatever was under way is over
    before = len(cluster.writes)
    task = heartbeats._task
    assert task is not None
    assert task.running
    assert heartbeats._resting
    heartbeats.keep({"n1": "u1"})
    await renewals(cluster, "n1", 1)
    assert len(cluster.writes) > before


async def test_a_lease_of_somebody_else(cluster: FakeCluster, heartbeats: Heartbeats) -> None:
    foreign = await cluster.create(LEASES, {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}})
    heartbeats.keep({"n1": "u1", "n2": "u2"})
    await renewals(cluster, "n2", 2)
    assert cluster.leases()["n1"] == foreign
    assert "not ours" in heartbeats.refused["n1"]
    await heartbeats.remove(["n1"])
    assert cluster.leases()["n1"] == foreign
    heartbeats.keep({})
    heartbeats.keep({"n1": "u1"})
    cluster.objects.pop(f"{LEASES}/n1")
    await renewals(cluster, "n1", 1)
    assert heartbeats.refused == {}


async def test_changed_deleted_or_taken_by_others(cluster: FakeCluster, heartbeats: Heartbeats) -> None:
    heartbeats.keep({"n1": "u1"})
    await renewals(cluster, "n1", 1)
    lease = cluster.objects[f"{LEASES}/n1"]
    lease["metadata"]["resourceVersion"] = "9999"
    await renewals(cluster, "n1", 1)
    del cluster.objects[f"{LEASES}/n1"]
    await renewals(cluster, "n1", 1)
    taken = {"metadata": {"name": "n1", "resourceVersion": "8888", "uid": "theirs"}, "spec": {}}
    cluster.objects[f"{LEASES}/n1"] = taken

    async def noticed() -> bool:
        return "n1" in heartbeats.refused

    await until(noticed, "that it is another's")
    assert cluster.leases()["n1"] == taken


async def test_a_cluster_that_does_not_answer(cluster: FakeCluster, heartbeats: Heartbeats) -> None:
    heartbeats.keep({"n1": "u1"})
    await renewals(cluster, "n1", 1)
    cluster.unavailable = "it is away"
    heartbeats._beats["n1"].due = 0
    with pytest.raises(SiteUnavailable, match="away"):
        await heartbeats._renew_due()
    cluster.unavailable = ""
    await renewals(cluster, "n1", 2)


async def test_time_only_grows(cluster: FakeCluster) -> None:
    """Also when our clock was set back, or belongs to a machine that is behind."""
    ahead = datetime(2026, 1, 31, 18, tzinfo=UTC)
    lease = {"metadata": {"name": "n1", "labels": LABELS}, "spec": {"renewTime": micro_time(ahead)}}
    await cluster.create(LEASES, lease)
    late = Heartbeats(cluster, cluster, LABELS, 0.15, now=lambda: ahead - timedelta(hours=1))
    late.keep({"n1": "u1"})
    await renewals(cluster, "n1", 2)
    await late.close()
    assert cluster.leases()["n1"]["spec"]["renewTime"] > micro_time(ahead)


async def test_throttled(cluster: FakeCluster, heartbeats: Heartbeats) -> None:
    """Those that were put off are sent again; the others were heard."""
    heartbeats.keep({"n1": "u1", "n2": "u2"})
    await renewals(cluster, "n2", 2)
    for beat in heartbeats._beats.values():
        beat.due = 0
    cluster.throttled = 1
    before = len(cluster.writes)
    with pytest.raises(SiteUnavailable, match="429"):
        await heartbeats._renew_due()
    assert cluster.writes[before:] == [f"{LEASES}/n2"]
    await renewals(cluster, "n1", 1)
