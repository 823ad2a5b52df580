"""What must not be lost or believed when the API server, or the line to it, fails."""

from __future__ import annotations

import asyncio
import subprocess
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from isthmus._kit.clock import utcnow
from isthmus.errors import Conflict, Expired, NotFound, StoreUnavailable
from isthmus.lab.kubernetes.control_plane import LabControlPlane
from isthmus.resources.kinds import JOB, LEASE
from isthmus.runtime import leading
from isthmus.runtime.informers import Informer
from isthmus.store.base import Key, Part, Query, Store
from isthmus.store.opening import open_store
from isthmus.store.settings import StoreSettings
from isthmus.testing.faulty_lines import FaultyLine
from isthmus.testing.kubernetes_store import calling, define
from isthmus.testing.store_watches import reported, take
from isthmus.testing.stores import changed, job, job_key, spec, status

# Servers that are restarted take their time on a busy machine.
pytestmark = [pytest.mark.anyio, pytest.mark.real, pytest.mark.timeout(300)]
PATIENCE = 90.0


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_watch_that_is_cut_goes_on_where_it_was(line: tuple[FaultyLine, str]) -> None:
    wire, location = line
    store = await open_store(location)
    other = await open_store(location)
    async with store.watch(Query(JOB), since=await store.version()) as changes:
        for n in range(6):
            wire.cut()
            await _persist(other, f"j{n}")
        got = await take(changes, 6)
    assert [name for _, name in reported(got)] == [f"j{n}" for n in range(6)]
    await store.close()
    await other.close()


async def _persist(store: Store, name: str) -> None:
    """Create it, however often the line breaks: who is told that it is not known looks, and does not guess."""
    while True:
        try:
            await store.create(JOB, job(name))
            return
        except StoreUnavailable:
            await asyncio.sleep(0.05)
        except Conflict:
            return


async def test_a_silent_watch_is_taken_for_dead(line: tuple[FaultyLine, str], kubernetes_api: LabControlPlane) -> None:
    wire, location = line
    store = await open_store(location, StoreSettings(silence=1.0, answer_wait=1.0))
    direct = await open_store(f"kubernetes:{kubernetes_api.kubeconfig}")
    async with store.watch(Query(JOB), since=await store.version()) as changes:
        wire.hush()
        await direct.create(JOB, job("unheard"))
        before = wire.connections
        await until(lambda: wire.connections > before)  # it gave up on the silent one
        with pytest.raises(StoreUnavailable):
            await store.get(job_key("unheard"))
        wire.resume()
        assert [name for _, name in reported(await take(changes, 1))] == ["unheard"]
    await store.close()
    await direct.close()


async def test_changes_that_the_server_forgot(kubernetes_api: LabControlPlane, line: tuple[FaultyLine, str]) -> None:
    """410: watchers are told to list again, and an informer ends up with the truth."""
    wire, location = line
    store = await open_store(location, StoreSettings(answer_wait=2.0))
    direct = await open_store(f"kubernetes:{kubernetes_api.kubeconfig}")
    gone = await direct.create(JOB, job("gone"))
    informer = Informer(store, JOB)
    task = asyncio.create_task(informer.run())
    await until(lambda: informer.get(gone.key) is not None)
    page = await store.list(Query(JOB), limit=1)
    async with store.watch(Query(JOB), since=page.version) as changes:
        wire.hush()
        await direct.delete(gone.key)
        for n in range(3):
            await direct.create(JOB, job(f"new-{n}"))
        await asyncio.to_thread(kubernetes_api.compact)
        kubernetes_api.stop("kube-apiserver")  # its own memory of the past goes with it
        await asyncio.to_thread(kubernetes_api.start_apiserver)
        wire.resume()
        with pytest.raises(Expired):
            await take(changes, 10)
    await until(lambda: {record.key.name for record in informer.all()} == {"new-0", "new-1", "new-2"})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()
    await direct.close()


async def test_the_server_restarts_under_load(kubernetes_api: LabControlPlane, admin_location: str) -> None:
    """Every write that was acknowledged is there, none twice, and a watcher saw each."""
    store = await open_store(admin_location)
    informer = Informer(store, JOB)
    task = asyncio.create_task(informer.run())
    await informer.synced()
    acknowledged: dict[str, int] = {}
    stop = asyncio.Event()

    async def write(writer: int) -> None:
        n = 0
        while not stop.is_set():
            name = f"w{writer}-{n}"
            try:
                record = await store.create(JOB, job(name))
                record = await store.update(JOB, changed(record, status=status("Running")), Part.STATUS)
                acknowledged[name] = record.version
                n += 1
            except StoreUnavailable:
                await asyncio.sleep(0.05)
            except Conflict:  # an earlier try, of which nothing was heard, took place
                n += 1

    writers = [asyncio.create_task(write(n)) for n in range(4)]
    await until(lambda: len(acknowledged) > 4)
    await asyncio.to_thread(kubernetes_api.stop, "kube-apiserver", kill=True)
    await asyncio.to_thread(kubernetes_api.start_apiserver)
    before = len(acknowledged)
    await until(lambda: len(acknowledged) > before + 4)
    stop.set()
    await asyncio.gather(*writers)
    there = {record.key.name: record for record in (await store.list(Query(JOB))).records}
    assert acknowledged.keys() <= there.keys()
    assert all(there[name].version == version for name, version in acknowledged.items())
    versions = {name: record.version for name, record in there.items()}
    await until(lambda: {record.key.name: record.version for record in informer.all()} == versions)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()


@pytest.fixture
def admin_location(admin: Path) -> str:
    return f"kubernetes:{admin}"


async def test_a_kind_that_is_removed_is_not_taken_for_an_empty_one(admin: Path, admin_location: str) -> None:
    store = await open_store(admin_location)
    await store.create(JOB, job("held", finalizers=["x/y"]))
    informer = Informer(store, JOB)
    task = asyncio.create_task(informer.run())
    await informer.synced()
    async with calling(admin) as api:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobs.isthmus.dev"
        await api.send("DELETE", path, "the definition")
        # Its objects go first, and one is held: it is marked, and the definition waits for it.
        marked = await _when(lambda: store.get(job_key("held")), lambda r: "deletionTimestamp" in r.obj["metadata"])
        assert informer.get(job_key("held")) is not None
        await store.update(JOB, changed(marked, finalizers=[]))
        with pytest.raises(StoreUnavailable, match="does not know this kind"):
            await _when(lambda: store.list(Query(JOB)), lambda _: False)
        with pytest.raises(StoreUnavailable):  # and not NotFound: that would be a statement about the job
            await store.get(job_key("held"))
        with pytest.raises(StoreUnavailable):
            await store.create(JOB, job("new"))
        await define(api)
    await store.create(JOB, job("again"))
    await until(lambda: [record.key.name for record in informer.all()] == ["again"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()


async def _when(ask: Any, holds: Any) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await ask()
            if holds(found):
                return found
            await asyncio.sleep(0.05)


async def test_conflicts_of_many(admin_location: str) -> None:
    """Updates without a version all take place, one after the other; with one, a single one does."""
    one, other = await open_store(admin_location), await open_store(admin_location)
    record = await one.create(JOB, job("a"))
    free = changed(record, resourceVersion="")
    results = await asyncio.gather(
        *((one, other)[n % 2].update(JOB, {**free, "spec": spec(priority=n + 1)}) for n in range(8))
    )
    assert len({result.version for result in results}) == 8
    with pytest.raises(Conflict):
        await other.update(JOB, changed(record, spec=spec(priority=99)))
    await one.close()
    await other.close()


APART: ContextVar[timedelta] = ContextVar("APART", default=timedelta())


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_leaders_whose_clocks_are_apart(
    admin_location: str, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times in a lease are for people to read: a candidate believes only what it has itself seen."""
    monkeypatch.setattr(leading, "utcnow", lambda: utcnow() + APART.get())
    store = await open_store(admin_location)
    settings = leading.LeaderSettings(duration=5.0, renew_deadline=4.0, interval=0.2)
    first, second = leading.Leadership(), leading.Leadership()

    def stand(name: str, leadership: leading.Leadership) -> asyncio.Task[None]:
        return asyncio.create_task(
            leading.LeaderElection(store, name, settings, leadership).run(asyncio.Event().wait)  # type: ignore[arg-type]
        )

    holding = stand("first", first)
    await until(lambda: first.held)
    APART.set(timedelta(minutes=minutes))
    waiting = stand("second", second)
    lease, renewals = Key(LEASE.name, "isthmus-system", "leader"), set[int]()
    while len(renewals) < 15:
        record = await store.get(lease)
        assert record.obj["spec"]["holderIdentity"] == "first"
        assert not second.held
        renewals.add(record.version)
        await asyncio.sleep(0.05)
    holding.cancel()
    await until(lambda: second.held)
    waiting.cancel()
    await asyncio.gather(holding, waiting, return_exceptions=True)
    await store.close()


async def test_events_of_others_are_not_ours(admin: Path, admin_location: str) -> None:
    from isthmus.resources.kinds import EVENT

    async with calling(admin) as api:
        about = {"kind": "Pod", "namespace": "ada", "name": "p"}
        foreign = {"metadata": {"name": "theirs", "namespace": "ada"}, "involvedObject": about, "reason": "Pulled"}
        path = "/api/v1/namespaces/ada/events"
        await api.send("POST", path, "an event", {"apiVersion": "v1", "kind": "Event", **foreign})
        store = await open_store(admin_location)
        assert [r.key.name for r in (await store.list(Query(EVENT))).records] == []
        with pytest.raises(NotFound):
            await store.delete(Key("Event", "ada", "theirs"))
        assert (await api.get(f"{path}/theirs", "it"))["reason"] == "Pulled"
        await api.send("DELETE", f"{path}/theirs", "it")
        await store.close()


def test_kubectl_sees_what_the_store_keeps(admin: Path, admin_location: str) -> None:
    async def make() -> None:
        store = await open_store(admin_location)
        await store.create(JOB, {**job("seen"), "status": status("Running")})
        await store.close()

    asyncio.run(make())
    shown = subprocess.run(
        ["kubectl", "--kubeconfig", admin, "get", "ijob", "-n", "ada"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines()[0].split() == ["NAME", "PHASE", "SITE", "EXIT", "REASON", "AGE"]
    assert shown.splitlines()[1].split()[:2] == ["seen", "Running"]
    category = subprocess.run(
        ["kubectl", "--kubeconfig", admin, "get", "isthmus", "-A"], capture_output=True, text=True, check=True
    ).stdout
    assert "job.isthmus.dev/seen" in category
