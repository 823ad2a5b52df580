"""Sites that do not answer, lose replies, forget, refuse or are slow: nothing is concluded from silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from isthmus.engines.base import Run, RunUsage
from isthmus.errors import SiteUnavailable, Superseded
from isthmus.resources.kinds import SITE
from isthmus.store.base import Key
from isthmus.testing.fake_engine import FakeEngine, Outcome

RunOnVirtualTime = Callable[[Coroutine[Any, Any, Any]], Any]


def held(_: Run) -> Outcome:
    return Outcome(after=None)


def failing(_: Run) -> Outcome:
    return Outcome(exit_code=3)


@pytest.mark.parametrize("phase", ["submit", "running", "finishing", "cancel"])
def test_a_site_that_is_away_delays_a_job_and_changes_nothing_else(
    plane: Any, on_virtual_time: RunOnVirtualTime, phase: str
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = lambda run: Outcome(after=None, files={"kept": b"1"})
            await it.submit("first")
            await it.phase("first", "Running")
            if phase == "submit":
                it.machine.faults.unavailable = "gone fishing"
                await it.submit("job", outputs=["kept"])
                await it.phase("job", "Placed", "Pending")
            else:
                await it.submit("job", outputs=["kept"])
                job = await it.phase("job", "Running")
                it.machine.faults.unavailable = "gone fishing"
                if phase == "finishing":
                    it.machine.end(job.run_id)
                elif phase == "cancel":
                    await it.change("job", intent="Cancel")
            await asyncio.sleep(600)
            before = await it.job("job")
            assert not before.status.phase.terminal
            assert (await it.job("first")).status.phase == "Running"
            it.machine.faults.unavailable = ""
            if phase in ("submit", "running"):
                job = await it.phase("job", "Running")
                it.machine.end(job.run_id)
            after = await it.ended("job")
            assert after.status.phase == ("Cancelled" if phase == "cancel" else "Succeeded")
            assert after.status.attempt == 0
            assert max(it.machine.starts.values()) == 1

    on_virtual_time(story())


def test_a_placed_job_says_that_its_site_does_not_answer(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("first")
            await it.phase("first", "Running")
            it.machine.faults.unavailable = "gone fishing"
            await it.submit("job")

            async def reported(text: str) -> Any:
                job = await it.job("job")
                return job if text in (job.status.message or "") else None

            waiting = await it.until(lambda: reported("gone fishing"))
            assert (waiting.status.phase, waiting.status.message) == ("Placed", "waits for site fake: gone fishing")
            written = len(it.store.updates)
            await asyncio.sleep(600)
            assert len(it.store.updates) == written, "what is no news is not written"
            it.machine.faults.unavailable = "gone hunting"
            await it.until(lambda: reported("hunting"))
            it.machine.faults.unavailable = ""
            assert (await it.phase("job", "Running")).status.message is None

    on_virtual_time(story())


def test_what_is_told_of_a_silent_site_does_not_hurry_the_next_try(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            asked = 0

            async def never_the_same(*_: Any, **__: Any) -> Any:
                nonlocal asked
                asked += 1
                raise SiteUnavailable(f"no answer number {asked}")

            await it.submit("first")
            await it.ended("first")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(FakeEngine, "submit", never_the_same)
                await it.submit("job")
                await asyncio.sleep(600)
            assert 5 < asked < 40, "ever longer pauses, up to a minute"
            await it.ended("job")

    on_virtual_time(story())


def test_a_lost_reply_never_starts_a_second_run(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane(cpus=100) as it:
            it.machine.faults.lose_replies = 20
            for number in range(40):
                await it.submit(f"job-{number}")
            jobs = await it.all_ended()
            assert {job.status.phase for job in jobs} == {"Succeeded"}
            assert set(it.machine.starts.values()) == {1}
            assert len(it.machine.starts) == 40

    on_virtual_time(story())


@pytest.mark.parametrize("outputs", [[], ["kept"]])
def test_a_run_that_its_site_forgot_ends_its_job_as_lost(
    plane: Any, on_virtual_time: RunOnVirtualTime, outputs: list[str]
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("job", outputs=outputs)
            job = await it.phase("job", "Running")
            it.machine.vanish(job.run_id)
            ended = await it.ended("job")
            assert (ended.status.phase, ended.status.reason) == ("Failed", "NodeLost")
            await it.submit("next", resources={"cpus": "4"})
            await it.phase("next", "Running")

    on_virtual_time(story())


def test_a_run_forgotten_while_its_outputs_are_collected_does_not_hold_its_job_for_ever(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("job", outputs=["kept"])
            job = await it.phase("job", "Running")
            it.machine.faults.silent = True
            it.machine.end(job.run_id)
            it.machine.faults.silent = False
            original = type(it.machine).notify
            it.machine.runs[job.run_id].outcome = Outcome(files={"kept": b"1"})
            seen = it.machine.runs[job.run_id]
            # It is there when it is looked at, and gone when its files are asked for.
            it.machine.runs.pop(job.run_id)
            it.machine.runs = _OnceThere(it.machine.runs, job.run_id, seen, looks=1)
            original(it.machine, job.run_id)
            ended = await it.ended("job")
            assert ended.status.phase in ("Succeeded", "Failed")

    on_virtual_time(story())


class _OnceThere(dict[str, Any]):
    def __init__(self, rest: dict[str, Any], run_id: str, run: Any, looks: int) -> None:
        super().__init__(rest)
        self._run_id, self._run, self._looks = run_id, run, looks

    def get(self, key: str, default: Any = None) -> Any:
        if key == self._run_id and self._looks:
            self._looks -= 1
            return self._run
        return super().get(key, default)


def test_a_site_that_refuses_ends_the_job_and_says_why(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.faults.refuse = "not on a Sunday"
            await it.submit("job", retries={"limit": 3})
            ended = await it.ended("job")
            assert (ended.status.phase, ended.status.reason) == ("Failed", "EngineRefused")
            assert "not on a Sunday" in (ended.status.message or "")

    on_virtual_time(story())


def test_a_site_that_tells_nothing_is_looked_at_after_a_restart(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            it.machine.faults.silent = True
            await it.submit("job")
            job = await it.phase("job", "Running")
            await it.stop()
            it.machine.end(job.run_id)
            it.start()
            assert (await it.ended("job")).status.phase == "Succeeded"

    on_virtual_time(story())


def test_a_site_deleted_while_jobs_are_placed_leaves_no_job_behind(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane(cpus=2) as it:
            it.machine.outcome = lambda run: Outcome(after=5.0)
            for number in range(6):
                await it.submit(f"job-{number}")
            await it.phase("job-0", "Running")
            await it.real.delete(Key(SITE.name, "", "fake"))
            await it.ended("job-0")

            async def removed() -> bool:
                page = await it.real.list(_sites())
                return not page.records

            await it.until(removed)
            left = [job for job in await it.jobs() if not job.status.phase.terminal]
            assert {job.status.phase for job in left} == {"Pending"}
            await it.create(SITE, "other", {"driver": "fake", "probeInterval": "2s"})
            await it.all_ended()
            assert set(it.machine.starts.values()) == {1}

    on_virtual_time(story())


def test_a_job_placed_at_a_site_that_is_gone_ends(plane: Any, on_virtual_time: RunOnVirtualTime) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = held
            await it.submit("job")
            await it.phase("job", "Running")
            # An administrator takes the finalizer away by force.
            record = await it.real.get(Key(SITE.name, "", "fake"))
            await it.real.delete(record.key)
            record = await it.real.get(record.key)
            metadata = {k: v for k, v in record.obj["metadata"].items() if k != "finalizers"}
            await it.real.update(SITE, {**record.obj, "metadata": metadata})
            ended = await it.ended("job")
            assert (ended.status.phase, ended.status.reason) == ("Failed", "NodeLost")

    on_virtual_time(story())


def _sites() -> Any:
    from isthmus.store.base import Query

    return Query(SITE)


@pytest.mark.parametrize("exit_code", [0, 3])
def test_what_a_site_learns_after_the_end_is_put_right(
    plane: Any, on_virtual_time: RunOnVirtualTime, exit_code: int
) -> None:
    async def story() -> None:
        async with plane() as it:
            it.machine.outcome = lambda _: Outcome(exit_code=exit_code)
            await it.submit("job")
            before = await it.ended("job")
            it.machine.correct(before.run_id, RunUsage(elapsed_seconds=2, cpu_seconds=1, energy_joules=7))

            async def corrected() -> Any:
                job = await it.job("job")
                return job if job.status.usage.energy_joules == 7 else None

            after = await it.until(corrected)
            assert (after.status.usage.elapsed_seconds, after.status.usage.cpu_seconds) == (2, 1)
            same = {"usage": None}
            assert after.status.model_copy(update=same) == before.status.model_copy(update=same)
            written = len(it.store.updates)
            it.machine.notify(before.run_id)
            await asyncio.sleep(600)
            assert len(it.store.updates) == written, "what is no news is not written"
            assert it.machine.starts[before.run_id] == 1

    on_virtual_time(story())


BROKEN = ValueError("node001[ cannot be expanded")


async def ready_is(it: Any, ready: bool) -> dict[str, Any]:
    """The status of the site once it is ready, or not."""

    async def looked() -> Any:
        status = (await it.real.get(Key(SITE.name, "", "fake"))).obj["status"]
        return status if status["phase"] == ("Ready" if ready else "Unreachable") else None

    found: dict[str, Any] = await it.until(looked)
    return found


def test_a_task_of_an_engine_that_fails_is_seen_at_the_site_and_started_again(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    """An error that no driver foresaw: the site is not Ready and says why, and works again when the task does."""

    async def story() -> None:
        async with plane() as it:
            await ready_is(it, True)
            (engine,) = it.machine.opened
            (task,) = engine.tasks.vital()
            while not task.failure:
                task.interrupt(BROKEN)
                await asyncio.sleep(0)
            status = await ready_is(it, False)
            assert "fake-watcher failed and is started again: ValueError: node001[" in status["message"]
            (ready,) = [known for known in status["conditions"] if known["type"] == "Ready"]
            assert (ready["status"], ready["reason"]) == ("False", "TaskFailed")
            await ready_is(it, True)
            await it.submit("after")
            await it.ended("after")

    on_virtual_time(story())


def test_changes_that_break_are_seen_at_the_site_and_asked_for_again(
    plane: Any, on_virtual_time: RunOnVirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, broken = FakeEngine.changes, asyncio.Event()

    async def breaking(self: FakeEngine) -> Any:
        if not broken.is_set():
            raise BROKEN
        async for runs in changes(self):
            yield runs

    monkeypatch.setattr(FakeEngine, "changes", breaking)

    async def story() -> None:
        async with plane() as it:
            assert "site-changes failed" in (await ready_is(it, False))["message"]
            broken.set()
            await ready_is(it, True)
            await it.submit("after")
            await it.ended("after")

    on_virtual_time(story())


def test_a_look_that_breaks_is_seen_at_the_site(
    plane: Any, on_virtual_time: RunOnVirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, broken = FakeEngine.probe, [BROKEN] * 3

    async def breaking(self: FakeEngine, classes: Any) -> Any:
        if broken:
            raise broken.pop()
        return await probe(self, classes)

    monkeypatch.setattr(FakeEngine, "probe", breaking)

    async def story() -> None:
        async with plane() as it:
            status = await ready_is(it, False)
            assert "could not be looked at: ValueError: node001[" in status["message"]
            await ready_is(it, True)

    on_virtual_time(story())


def test_an_engine_that_could_not_be_opened_leaves_nothing_behind(
    plane: Any, on_virtual_time: RunOnVirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = FakeEngine.open
    failures = [SiteUnavailable("half way")] * 2

    async def half(self: FakeEngine) -> None:
        await opening(self)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(FakeEngine, "open", half)

    async def story() -> None:
        async with plane() as it:
            await ready_is(it, True)
            assert len(it.machine.opened) == 1
            assert [task.get_name() for task in asyncio.all_tasks()].count("fake-watcher") == 1

    on_virtual_time(story())


def test_a_site_that_another_control_plane_has_opened_since_is_opened_anew(
    plane: Any, on_virtual_time: RunOnVirtualTime
) -> None:
    async def story() -> None:
        async with plane() as it:
            before = await it.until(lambda: first_of(it))

            async def superseded(_: Any) -> Any:
                raise Superseded("another control plane has opened the site since")

            before.probe = superseded

            async def anew() -> bool:
                return bool(it.machine.opened - {before})

            await it.until(anew)
            assert before not in it.machine.opened
            await it.submit("job")
            assert (await it.ended("job")).status.phase == "Succeeded"

    on_virtual_time(story())


async def first_of(plane: Any) -> Any:
    return next(iter(plane.machine.opened), None)
