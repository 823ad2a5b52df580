"""The lease: kept while the loop is blocked or the store is away for a moment, taken at once from the dead."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isthmus.config import ServerSettings
from isthmus.errors import StoreUnavailable, Unavailable
from isthmus.resources.kinds import LEASE
from isthmus.runtime import leading
from isthmus.runtime.leading import PROCESS, Candidate, LeaderElection, LeaderSettings, Leadership, Standing
from isthmus.runtime.processes import mark_of
from isthmus.store.base import Key, Store
from isthmus.store.opening import open_lease_store, open_store
from isthmus.testing.postgres import Postgres

KEY = Key(LEASE.name, "isthmus-system", "leader")
LONG = LeaderSettings(duration=600, renew_deadline=400, interval=0.02, look=0.02)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await open_store(tmp_path / "x.db")
    yield made
    await made.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Postgres(durable=False) as database:
        yield database.url


class Away:
    """A store that can be away."""

    def __init__(self, store: Store) -> None:
        self.away, self._store = False, store

    def __getattr__(self, name: str) -> Any:
        if self.away:
            raise StoreUnavailable("away")
        return getattr(self._store, name)


class Leader:
    """One that stands for election, and how often it led."""

    def __init__(self, store: Any, name: str = "one", settings: LeaderSettings = LONG, **options: Any) -> None:
        self.terms, self.working, self.leadership = 0, False, Leadership()
        self.election = LeaderElection(store, name, settings, self.leadership, **options)
        self.task = asyncio.create_task(self.election.run(self.lead))

    async def lead(self) -> None:
        self.terms, self.working = self.terms + 1, True
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


async def write_mark(store: Store, mark: str) -> None:
    record = await store.get(KEY)
    meta = {**record.obj["metadata"], "annotations": {PROCESS: mark}}
    await store.update(LEASE, {**record.obj, "metadata": meta})


@pytest.mark.anyio
async def test_what_a_dead_process_of_this_machine_held_is_taken_at_once(store: Store) -> None:
    assert await Candidate(store, "one", LONG).attempt() is Standing.OURS
    other = Candidate(store, "two", LONG)
    assert await other.attempt() is Standing.ANOTHERS
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    await write_mark(store, mark_of(process.pid))
    assert await other.attempt() is Standing.ANOTHERS
    process.kill()
    process.wait()
    assert await other.attempt() is Standing.OURS
    assert await Candidate(store, "one", LONG).attempt() is Standing.ANOTHERS
    lease = (await store.get(KEY)).obj
    assert lease["spec"]["leaseTransitions"] == 1
    assert lease["spec"]["leaseDurationSeconds"] == 600


@pytest.mark.anyio
async def test_what_a_process_elsewhere_held_is_not_taken_before_its_time(store: Store) -> None:
    assert await Candidate(store, "one", LONG).attempt() is Standing.OURS
    for mark in ("", "another-boot/pid:[4026531836]/4194311/1"):
        await write_mark(store, mark)
        assert await Candidate(store, "two", LONG).attempt() is Standing.ANOTHERS


@pytest.mark.anyio
async def test_a_store_that_is_away_for_a_moment_stops_effects_and_does_not_end_the_term(store: Store) -> None:
    settings = LeaderSettings(duration=600, renew_deadline=0.3, interval=0.02, look=0.02)
    away = Away(store)
    leader = Leader(away, settings=settings)
    leadership = leader.leadership
    await until(lambda: leader.working)
    for _ in range(2):
        away.away = True
        await until(lambda: not leadership.held)
        assert leader.working
        away.away = False
        await until(lambda: leadership.held)
    assert (leader.terms, leader.working) == (1, True)
    await leader.stop()
    assert not leadership.held
    assert not leader.working


@pytest.mark.anyio
async def test_a_store_that_is_away_for_longer_ends_the_term_and_the_next_one_begins_anew(store: Store) -> None:
    away = Away(store)
    leader = Leader(away, settings=LeaderSettings(duration=0.6, renew_deadline=0.3, interval=0.02))
    await until(lambda: leader.working)
    away.away = True
    await until(lambda: not leader.working)
    assert not leader.leadership.held
    away.away = False
    await until(lambda: leader.terms == 2)
    await leader.stop()


@pytest.mark.anyio
async def test_a_lease_found_in_other_hands_ends_the_lead_at_once(store: Store) -> None:
    leader = Leader(store)
    await until(lambda: leader.working)
    record = await store.get(KEY)
    await store.update(LEASE, {**record.obj, "spec": {**record.obj["spec"], "holderIdentity": "two"}})
    await until(lambda: not leader.working)  # long before its own deadline, which is minutes away
    assert not leader.leadership.held
    with pytest.raises(Unavailable):
        leader.leadership.check()
    await leader.stop()


@pytest.mark.anyio
async def test_a_machine_that_slept_no_longer_leads_when_it_wakes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader(store)
    await until(lambda: leader.leadership.held)
    real = leading.now
    monkeypatch.setattr(leading, "now", lambda: real() + 500)
    with pytest.raises(Unavailable):
        leader.leadership.check()
    await leader.stop()


@pytest.mark.anyio
async def test_never_do_two_lead_at_the_same_time(store: Store) -> None:
    quick = LeaderSettings(duration=0.3, renew_deadline=0.15, interval=0.02)
    candidates = [Leader(store, str(number), quick) for number in range(3)]
    for _ in range(200):
        assert sum(one.leadership.held for one in candidates) <= 1
        leader = next((one for one in candidates if one.leadership.held), None)
        if leader and leader.working and len(candidates) > 1:
            candidates.remove(leader)
            await leader.stop()  # gone without a word: its lease must run out first
        await asyncio.sleep(0.01)
    await until(lambda: candidates[0].working)
    for one in candidates:
        await one.stop()


def test_two_of_the_same_name_and_number_are_told_apart(tmp_path: Path) -> None:
    assert ServerSettings(tmp_path).identity != ServerSettings(tmp_path).identity


@pytest.mark.anyio
async def test_time_in_which_the_store_was_away_does_not_count_against_the_holder(store: Store) -> None:
    quick = LeaderSettings(duration=0.2, renew_deadline=0.1, interval=0.02, look=0.02)
    away = Away(store)
    assert await Candidate(store, "one", quick).attempt() is Standing.OURS
    await write_mark(store, "")
    other = Candidate(away, "two", LeaderSettings(duration=0.2, renew_deadline=60))  # type: ignore[arg-type]
    assert await other.attempt() is Standing.ANOTHERS
    away.away = True
    assert await other.attempt() is Standing.UNKNOWN
    await asyncio.sleep(0.3)
    away.away = False
    assert await other.attempt() is Standing.ANOTHERS
    await asyncio.sleep(0.3)
    assert await other.attempt() is Standing.OURS


@pytest.mark.anyio
async def test_work_that_fails_ends_the_election_with_its_reason(store: Store) -> None:
    async def lead() -> None:
        raise KeyError("a mistake of ours")

    leadership = Leadership()
    election = LeaderElection(store, "one", LONG, leadership)
    with pytest.raises(KeyError):
        await election.run(lead)
    assert not leadership.held
    leader = Leader(store)  # run again, it leads again: the lease is still its own
    await until(lambda: leader.working)
    await leader.stop()


@pytest.mark.anyio
async def test_who_resigns_is_followed_at_once(store: Store) -> None:
    leader = Leader(store)
    await until(lambda: leader.working)
    await leader.stop()
    await write_mark(store, "")
    other = Candidate(store, "two", LONG)
    assert await other.attempt() is Standing.ANOTHERS
    await leader.election.resign()
    assert await other.attempt() is Standing.OURS


class Rival:
    """Another control plane, on a thread of its own, that wants the lease."""

    def __init__(self, address: str, settings: LeaderSettings) -> None:
        self._address, self._settings = address, settings
        self.won, self.looks, self._stop = False, 0, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._stand()))

    async def _stand(self) -> None:
        store = await open_lease_store(self._address)
        candidate = Candidate(store, "rival", self._settings)
        while not self._stop.is_set():
            self.won |= await candidate.attempt() is Standing.OURS
            self.looks += 1
            await asyncio.sleep(self._settings.look)
        await store.close()

    def __enter__(self) -> Rival:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


async def leads_on_a_thread(address: str, settings: LeaderSettings) -> tuple[Leader, Leadership, Store]:
    store = await open_store(address)
    leader = Leader(store, settings=settings, open_lease_store=partial(open_lease_store, address))
    await until(lambda: leader.working)
    return leader, leader.leadership, store


@pytest.mark.real
@pytest.mark.anyio
async def test_a_loop_that_is_blocked_for_longer_than_the_lease_does_not_lose_it(address: str) -> None:
    settings = LeaderSettings()
    leader, leadership, store = await leads_on_a_thread(address, settings)
    with Rival(address, settings) as rival:
        await until(lambda: rival.looks > 2)
        time.sleep(2 * settings.duration)
        assert leadership.held
        assert not rival.won
    assert (leader.terms, leader.working) == (1, True)
    await leader.stop()
    assert not leadership.held
    await leader.election.resign()
    await store.close()


@pytest.mark.real
@pytest.mark.anyio
async def test_a_loop_that_never_comes_back_does_not_keep_the_lead(address: str) -> None:
    settings = LeaderSettings(duration=1.0, renew_deadline=0.8, interval=0.1, look=0.1, stuck=0.5)
    leader, leadership, store = await leads_on_a_thread(address, settings)
    with Rival(address, settings) as rival:
        for _ in range(600):
            if rival.won:
                break
            time.sleep(0.1)
        assert rival.won
        assert not leadership.held
        await until(lambda: not leader.working)
    await leader.stop()
    await store.close()
