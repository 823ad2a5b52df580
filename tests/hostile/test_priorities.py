"""Priority orders one's own jobs, within bounds; nobody's puts another tenant's jobs off for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.resources.kinds import TENANT
from isthmus.scheduling.demands import Demand, Room
from isthmus.scheduling.ledger import Ledger, Occupying, Waiting
from isthmus.scheduling.placement import SiteView, plan
from isthmus.store.base import Key
from isthmus.testing.apis import RunningApi, running_api
from isthmus.testing.servers import GROUP

JOBS = f"{GROUP}/namespaces/physics/jobs"


def site(cpus: int) -> SiteView:
    return SiteView("a", {"name": "a"}, Room(cpus * 1000, 1000))


def wanted(tenant: str, cpus: int = 1) -> Demand:
    return Demand(tenant, Room(cpus * 1000))


def test_tenants_share_and_each_ones_priority_counts_among_its_own() -> None:
    book = Ledger()
    for number in range(4):
        book.put(Waiting(f"greedy-{number}", wanted("greedy"), 1_000_000))
        book.put(Waiting(f"modest-{number}", wanted("modest"), number))
    placed = [assignment.uid for assignment in plan(book, [site(4)], {}).assignments]
    assert sorted(placed) == ["greedy-0", "greedy-1", "modest-2", "modest-3"]


def test_who_runs_much_already_comes_later() -> None:
    book = Ledger()
    for number in range(3):
        book.put(Occupying(f"running-{number}", wanted("greedy"), "a"))
    book.put(Waiting("greedy", wanted("greedy"), 1_000_000))
    book.put(Waiting("modest", wanted("modest"), -1_000_000))
    assert [assignment.uid for assignment in plan(book, [site(4)], {}).assignments] == ["modest"]


@given(
    priorities=st.tuples(*[st.integers(-1_000_000, 1_000_000)] * 3),
    sizes=st.tuples(*[st.integers(1, 3)] * 3),
    length=st.integers(1, 4),
)
@settings(max_examples=30)
def test_nobody_waits_for_ever(priorities: tuple[int, ...], sizes: tuple[int, ...], length: int) -> None:
    """Three tenants who always have four jobs waiting: each gets one placed at the latest after those of all others."""
    book, sites, ends, count = Ledger(), [site(4)], dict[int, list[str]](), 0
    last, waiting = dict.fromkeys(range(3), 0), dict[str, Waiting]()
    for moment in range(120):
        for uid in ends.pop(moment, ()):
            book.drop(uid)
        for tenant in range(3):
            while sum(entry.demand.tenant == f"t{tenant}" for entry in waiting.values()) < 4:
                count += 1
                entry = Waiting(f"{count:05}", wanted(f"t{tenant}", sizes[tenant]), priorities[tenant])
                waiting[entry.uid] = entry
                book.put(entry)
        for assignment in plan(book, sites, {}).assignments:
            entry = waiting.pop(assignment.uid)
            book.put(Occupying(entry.uid, entry.demand, "a"))
            ends.setdefault(moment + length, []).append(entry.uid)
            last[int(entry.demand.tenant[1:])] = moment
        assert all(moment - since <= 3 * 4 * length + 4 for since in last.values()), last


# What a caller may ask for


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        yield api


def job(name: str, priority: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"command": ["true"], "priority": priority}}


@pytest.mark.anyio
async def test_roles_and_quotas_bound_the_priority(api: RunningApi) -> None:
    async with api.client("member") as member, api.client("admin") as admin:
        assert (await member.post(JOBS, json=job("fine", 1000))).status_code == 201
        refused = await member.post(JOBS, json=job("loud", 1001))
        assert (refused.status_code, "above 1000" in refused.text) == (403, True)
        assert (await admin.post(JOBS, json=job("loud", 1_000_000))).status_code == 201
        merge = {"Content-Type": "application/merge-patch+json"}
        for change, code in (({"intent": "Hold"}, 200), ({"priority": 999_999}, 200), ({"priority": 1_000_000}, 403)):
            answer = await member.patch(f"{JOBS}/loud", json={"spec": change}, headers=merge)
            assert answer.status_code == code, answer.text
        experiment = {"metadata": {"name": "e"}, "spec": {"template": {"command": ["true"], "priority": 5000}}}
        answer = await member.post(f"{GROUP}/namespaces/physics/experiments", json=experiment)
        assert answer.status_code == 403, answer.text
        bound = {"spec": {"quota": {"priority": 5}}}
        assert (await admin.patch(f"{GROUP}/tenants/physics", json=bound, headers=merge)).status_code == 200
        assert (await api.context.store.get(Key(TENANT.name, "", "physics"))).obj["spec"]["quota"]["priority"] == 5
        assert (await member.post(JOBS, json=job("six", 6))).status_code == 403
        assert (await member.post(JOBS, json=job("five", 5))).status_code == 201
