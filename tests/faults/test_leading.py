"""Who leads, when leases are stolen, clocks sleep and machines bear the same name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.config import ServerSettings
from isthmus.errors import StoreUnavailable, Unavailable
from isthmus.resources.kinds import LEASE
from isthmus.runtime import leading
from isthmus.runtime.leading import LeaderElection, LeaderSettings, Leadership
from isthmus.store.base import Key, Store
from isthmus.store.opening import open_store

pytestmark = pytest.mark.anyio

KEY = Key(LEASE.name, "isthmus-system", "leader")
LONG = LeaderSettings(duration=600, renew_deadline=400, interval=0.02)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    made = await open_store(tmp_path / "x.db")
    yield made
    await made.close()


class Candidate:
    """One that stands for election."""

    def __init__(self, store: Any, name: str, settings: LeaderSettings = LONG) -> None:
        self.leadership, self.terms, self.working = Leadership(), 0, False
        self._election = LeaderElection(store, name, settings, self.leadership)
        self.task = asyncio.create_task(self._election.run(self.lead))

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
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.005)


def test_two_of_the_same_name_and_number_are_told_apart(tmp_path: Path) -> None:
    assert ServerSettings(tmp_path).identity != ServerSettings(tmp_path).identity


async def test_a_lease_found_in_other_hands_ends_the_lead_at_once(store: Store) -> None:
    one = Candidate(store, "one")
    await until(lambda: one.working)
    record = await store.get(KEY)
    await store.update(LEASE, {**record.obj, "spec": {**record.obj["spec"], "holderIdentity": "two"}})
    await until(lambda: not one.working)  # long before its own deadline, which is minutes away
    assert not one.leadership.held
    with pytest.raises(Unavailable):
        one.leadership.check()
    await one.stop()


async def test_a_machine_that_slept_no_longer_leads_when_it_wakes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Candidate(store, "one")
    await until(lambda: one.leadership.held)
    real = leading.now
    monkeypatch.setattr(leading, "now", lambda: real() + 500)
    with pytest.raises(Unavailable):
        one.leadership.check()
    await one.stop()


async def test_a_store_that_is_away_ends_the_lead_and_the_next_term_begins_anew(store: Store) -> None:
    class Gone:
        away = False

        def __getattr__(self, name: str) -> Any:
            if self.away:
                raise StoreUnavailable("away")
            return getattr(store, name)

    gone = Gone()
    one = Candidate(gone, "one", LeaderSettings(duration=0.6, renew_deadline=0.3, interval=0.02))
    await until(lambda: one.working)
    gone.away = True
    await until(lambda: not one.working)
    assert not one.leadership.held
    gone.away = False
    await until(lambda: one.terms == 2)
    await one.stop()


async def test_never_do_two_lead_at_the_same_time(store: Store) -> None:
    quick = LeaderSettings(duration=0.3, renew_deadline=0.15, interval=0.02)
    candidates = [Candidate(store, str(number), quick) for number in range(3)]
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
