"""Tags become digests before a job is placed; others do not wait for a slow registry, and sites do where it is away."""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.engines.base import Run
from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.images.references import RegistryReference
from isthmus.resources.kinds import SITE
from isthmus.store.base import Key
from isthmus.testing.fake_engine import Outcome
from isthmus.testing.planes import Plane, with_plane

FIRST, SECOND = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


class Registry:
    """Answers what a test wants, after a while."""

    def __init__(self) -> None:
        self.means: str | Exception = FIRST
        self.seconds = 0.0
        self.asked: list[str] = []

    def signed_in(self, login: object) -> Registry:
        return self

    async def close(self) -> None:
        pass

    async def resolve(self, wanted: RegistryReference) -> str:
        self.asked.append(str(wanted))
        await asyncio.sleep(self.seconds)
        if isinstance(self.means, Exception):
            raise self.means
        return self.means


async def with_registry(it: Plane) -> Registry:
    made = Registry()
    await it.stop()
    it.images, it.make_registries = True, lambda _: made  # type: ignore[assignment,return-value]
    it.start()
    return made


def noting(it: Plane, **outcome: Any) -> list[Run]:
    seen: list[Run] = []

    def note(run: Run) -> Outcome:
        seen.append(run)
        return Outcome(**outcome)

    it.machine.outcome = note
    return seen


@with_plane()
async def test_every_attempt_runs_what_the_tag_meant_at_first(it: Plane) -> None:
    registry, runs = await with_registry(it), noting(it, exit_code=1)
    await it.submit("job", image="example.org/tool:1", retries={"limit": 2, "backoff": "1s"})
    await it.phase("job", "Placed", "Running", "Pending")
    await it.until(lambda: _some(runs))
    registry.means = SECOND
    ended = await it.ended("job")
    assert (ended.status.image, len(registry.asked)) == (FIRST, 1)
    assert [run.image for run in runs] == [f"example.org/tool:1@{FIRST}"] * 3


async def _some(runs: list[Run]) -> bool:
    return bool(runs)


@with_plane(cpus=20)
async def test_all_elements_of_an_array_run_the_same(it: Plane) -> None:
    registry, runs = await with_registry(it), noting(it)
    await it.submit("array", image="tool:1", array={"indices": "0-9"})
    ended = await it.ended("array")
    assert (ended.status.image, len(registry.asked)) == (FIRST, 1)
    assert {run.image for run in runs} == {f"docker.io/library/tool:1@{FIRST}"}
    assert len(runs) == 10


@with_plane()
async def test_what_waits_is_resolved_when_it_is_accepted(it: Plane) -> None:
    registry = await with_registry(it)
    await it.submit("held", image="tool:1", intent="Hold")
    await it.submit("after", image="tool:1", dependencies=[{"job": "held"}])
    for name, reason in (("held", "Held"), ("after", "DependencyWaiting")):
        assert (await it.waits(name, reason)).status.image == FIRST
    registry.means = SECOND
    await it.change("held", intent="Run")
    assert (await it.ended("after")).status.image == FIRST


@with_plane(cpus=20)
async def test_jobs_that_ask_at_once_are_answered_together(it: Plane) -> None:
    registry = await with_registry(it)
    registry.seconds = 5
    for number in range(20):
        await it.submit(f"job{number}", image="example.org/tool:1")
    await it.all_ended()
    assert len(registry.asked) == 2  # those who came while the first was on its way waited for the second


@with_plane()
async def test_a_slow_registry_is_not_waited_for_by_others(it: Plane) -> None:
    registry = await with_registry(it)
    registry.seconds = 10
    for number in range(200):  # more than there are workers
        await it.submit(f"slow{number}", image=f"example.org/tool{number}:1")
    await asyncio.sleep(0.5)
    await it.submit("plain")
    plain = await it.ended("plain", seconds=5)
    assert plain.status.phase == "Succeeded"
    waits = await it.waits("slow150", "ResolvingImage")
    assert "example.org/tool150:1" in (waits.status.message or "")
    assert len(registry.asked) <= 8  # four at a time for one tenant


@with_plane()
async def test_a_registry_that_is_away_is_left_to_the_site(it: Plane) -> None:
    registry, runs = await with_registry(it), noting(it)
    registry.means = SiteUnavailable("no route")
    await it.submit("job", image="example.org/tool:1")
    ended = await it.ended("job")
    assert (ended.status.phase, ended.status.image) == ("Succeeded", None)
    assert [c.message for c in ended.status.conditions if c.type == "ImageResolved"] == ["no route"]
    assert [run.image for run in runs] == ["example.org/tool:1"]
    await it.submit("next", image="example.org/tool:2")
    await it.ended("next")
    assert len(registry.asked) == 1  # it is left alone for a while


@with_plane()
async def test_no_such_image_fails_at_once_unless_a_cluster_may_know_better(it: Plane) -> None:
    registry = await with_registry(it)
    registry.means = EngineRefused("there is no such image")
    await it.submit("job", image="example.org/tool:1")
    ended = await it.ended("job")
    assert (ended.status.phase, ended.status.reason) == ("Failed", "ImageRefused")
    assert (ended.status.message, ended.status.site) == ("there is no such image", None)
    await it.create(SITE, "cluster", {"driver": "kubernetes"})
    await it.submit("other", image="example.org/tool:1", placement={"sites": ["fake"]})
    assert (await it.ended("other")).status.reason == "ImageRefused"
    await it.submit("third", image="example.org/tool:1")
    assert (await it.ended("third")).status.phase == "Succeeded"


@with_plane()
async def test_nobody_asks_where_the_digest_is_named_or_the_registry_is_not_allowed(it: Plane) -> None:
    registry, runs = await with_registry(it), noting(it)
    await it.submit("exact", image=f"example.org/tool@{SECOND}")
    await it.ended("exact")
    assert [run.image for run in runs] == [f"example.org/tool@{SECOND}"]
    allowed = {"allowed": ["ghcr.io/org"]}
    await it.change_object(SITE, Key(SITE.name, "", "fake"), registries=allowed)
    await it.submit("job", image="example.org/tool:1")
    waits = await it.waits("job", "NoSiteFits")
    assert "it takes no images of example.org/tool, only of ghcr.io/org" in (waits.status.message or "")
    assert registry.asked == []


@with_plane(cpus=20)
async def test_a_crash_while_the_registry_is_asked_loses_nothing(it: Plane) -> None:
    registry = await with_registry(it)
    registry.seconds = 5
    await it.submit("array", image="tool:1", array={"indices": "0-4"})
    await asyncio.sleep(1)
    await it.stop()
    it.start()
    ended = await it.ended("array")
    assert (ended.status.phase, ended.status.image) == ("Succeeded", FIRST)
