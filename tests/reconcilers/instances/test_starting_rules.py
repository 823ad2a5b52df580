"""What becomes of an instance, by every way it may come to it; and on a whole control plane, on virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from isthmus._kit.clock import timestamp
from isthmus.engines.base import PortStream
from isthmus.errors import PortClosed
from isthmus.reconcilers.instances.starting_rules import MOST_FAILURES, Step, decide
from isthmus.resources.instances import Instance
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import INSTANCE, TEMPLATE
from isthmus.resources.sites import Site
from isthmus.resources.templates import Template
from isthmus.store.base import Key
from isthmus.testing.fake_engine import FakeEngine, Outcome
from isthmus.testing.planes import Plane, with_plane

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
URL = "http://demo--ada.instances.localhost/"


def instance(phase: str = "Pending", spec: dict[str, Any] | None = None, **status: Any) -> Instance:
    meta = {"name": "demo", "namespace": "ada", "uid": "u"}
    wanted = {"template": "t", **(spec or {})}
    return Instance.model_validate({"metadata": meta, "spec": wanted, "status": {"phase": phase, **status}})


def template(**spec: Any) -> Template:
    return Template.model_validate({"metadata": {"name": "t"}, "spec": {"command": ["x"], "port": 80, **spec}})


def job(phase: str, **status: Any) -> Job:
    meta = {"name": "demo-1", "namespace": "ada", "uid": "j"}
    seen = {"phase": phase, "site": "here", **status}
    return Job.model_validate({"metadata": meta, "spec": {"command": ["x"]}, "status": seen})


def ago(**time: float) -> str:
    return timestamp(NOW - timedelta(**time))


STARTED: dict[str, Any] = {"starts": 1, "job": "demo-1", "port": 80}


@pytest.mark.parametrize(
    ("given", "of", "has", "listens", "phase", "step", "reason", "stop"),
    [
        (instance(), template(), None, False, "Pending", Step.NOTHING, None, False),
        (instance(starts=1), template(), None, False, "Pending", Step.START, None, False),
        (instance(starts=1), None, None, False, "Pending", Step.NOTHING, "NoTemplate", False),
        (instance(**STARTED), template(), None, False, "Failed", Step.NOTHING, "JobDeleted", True),
        (instance(**STARTED), template(), job("Queued"), False, "Pending", Step.NOTHING, None, False),
        (
            instance(**STARTED), template(), job("Running", startedAt=ago(seconds=1)), False,
            "Starting", Step.NOTHING, "NotListening", False,
        ),
        (
            instance("Starting", **STARTED), template(), job("Running", startedAt=ago(seconds=1)), True,
            "Ready", Step.NOTHING, None, False,
        ),
        (
            instance("Ready", **STARTED), template(idleAfter="1h"), job("Running", startedAt=ago(minutes=62)), False,
            "Stopping", Step.END, "Idle", True,
        ),
        (
            instance("Ready", **STARTED, lastUsedAt=ago(minutes=5)), template(idleAfter="1h"),
            job("Running", startedAt=ago(minutes=62)), False, "Ready", Step.NOTHING, None, False,
        ),
        (
            instance("Ready", {"idleAfter": "0s"}, **STARTED), template(idleAfter="1h"),
            job("Running", startedAt=ago(days=2)), False, "Ready", Step.NOTHING, None, False,
        ),
        (
            instance("Ready", **STARTED), template(longestLife="8h"), job("Running", startedAt=ago(hours=8)), False,
            "Stopping", Step.END, "Expired", True,
        ),
        (
            instance("Ready", **STARTED), template(longestLife="8h"), job("Running", startedAt=ago(hours=7.9)), False,
            "Ready", Step.NOTHING, "ExpiresSoon", False,
        ),
        (
            instance("Ready", {"longestLife": "12h"}, **STARTED), template(longestLife="8h"),
            job("Running", startedAt=ago(hours=8)), False, "Ready", Step.NOTHING, None, False,
        ),
        (
            instance("Ready", {"intent": "Stop"}, **STARTED), template(), job("Running"), False,
            "Stopping", Step.END, "Stopped", False,
        ),
        (
            instance("Stopping", {"intent": "Run"}, **STARTED, reason="Idle"), template(), job("Running"), False,
            "Stopping", Step.END, "Idle", False,
        ),
        (
            instance("Stopping", {"intent": "Stop"}, **STARTED, reason="Idle"), template(), job("Cancelled"), False,
            "Stopped", Step.NOTHING, "Idle", False,
        ),
        (
            instance("Stopped", {"intent": "Stop"}, **STARTED), template(), job("Cancelled"), False,
            "Stopped", Step.NOTHING, None, False,
        ),
        (
            instance("Stopped", {"intent": "Run"}, **STARTED), template(), job("Cancelled"), False,
            "Pending", Step.NOTHING, None, False,
        ),
        (
            instance("Ready", **STARTED), template(), job("Failed", reason="NodeLost"), False,
            "Pending", Step.NOTHING, "NodeLost", False,
        ),
        (
            instance("Ready", **STARTED, failures=MOST_FAILURES), template(), job("Failed", reason="NodeLost"), False,
            "Failed", Step.NOTHING, "NodeLost", True,
        ),
        (
            instance("Starting", **STARTED), template(), job("Failed", reason="NonZeroExit"), False,
            "Failed", Step.NOTHING, "NonZeroExit", True,
        ),
        (
            instance("Ready", **STARTED), template(), job("Succeeded"), False,
            "Stopped", Step.NOTHING, "ProgramEnded", True,
        ),
        (
            instance("Ready", **STARTED), template(), job("Cancelled"), False,
            "Stopped", Step.NOTHING, "JobCancelled", True,
        ),
    ],
)  # fmt: skip
def test_one_step(
    given: Instance,
    of: Template | None,
    has: Job | None,
    listens: bool,
    phase: str,
    step: Step,
    reason: str | None,
    stop: bool,
) -> None:
    made = decide(given, of, has, listens=listens, url=URL, now=NOW)
    assert (made.status.phase, made.step, made.status.reason, made.stop) == (phase, step, reason, stop)
    assert made.status.url == (URL if phase == "Ready" else None), "an address that leads nowhere is none"


def test_after_a_fault_of_a_machine_the_next_start_waits_longer_each_time() -> None:
    waits = []
    for failures in range(MOST_FAILURES):
        given = instance("Ready", **STARTED, failures=failures)
        made = decide(given, template(), job("Failed", reason="NodeLost"), listens=False, url=URL, now=NOW)
        assert (made.status.starts, made.status.job, made.status.failures) == (2, None, failures + 1)
        waits.append(made.look_after)
        again = given.model_copy(update={"status": made.status})
        assert decide(again, template(), None, listens=False, url=URL, now=NOW).step is Step.NOTHING
        later = NOW + timedelta(minutes=10)
        assert decide(again, template(), None, listens=False, url=URL, now=later).step is Step.START
    assert waits == sorted(waits)


class _Listening(FakeEngine):
    """Its runs listen once somebody says so."""

    open_ports: set[int] = set()

    async def connect(self, run_id: str, port: int) -> PortStream:
        if port not in self.open_ports:
            raise PortClosed("nothing listens")
        return _Nothing()


class _Nothing:
    async def receive(self) -> bytes:
        return b""

    async def send(self, data: bytes) -> None: ...

    async def finish(self) -> None: ...

    async def close(self) -> None: ...


async def _seen(plane: Plane, phase: str) -> Instance:
    async def there() -> Instance | None:
        found = Instance.model_validate((await plane.real.get(Key(INSTANCE.name, "default", "demo"))).obj)
        return found if found.status.phase == phase else None

    return await plane.until(there, seconds=8000)


async def _prepared(plane: Plane) -> None:
    _Listening.open_ports = set()
    plane.machine.outcome = lambda _: Outcome(after=None)

    async def make(site: Site) -> _Listening:
        return _Listening(plane.machine)

    plane.make_engine = make  # type: ignore[method-assign,assignment]
    await plane.create(TEMPLATE, "t", {"command": ["serve"], "port": 80, "idleAfter": "10m", "longestLife": "8h"})
    await plane.create(INSTANCE, "demo", {"template": "t"})


@with_plane()
async def test_an_instance_starts_is_stopped_when_nobody_uses_it_and_starts_again(plane: Plane) -> None:
    await plane.stop()
    await _prepared(plane)
    plane.start()
    seen = await _seen(plane, "Starting")
    assert (seen.status.job, seen.status.reason) == ("demo-1", "NotListening")
    _Listening.open_ports = {80}
    ready = await _seen(plane, "Ready")
    await plane.stop()
    plane.start()
    stopped = await _seen(plane, "Stopped")
    assert (stopped.status.reason, stopped.spec.intent) == ("Idle", "Stop")
    assert (await plane.ended("demo-1")).status.phase == "Cancelled"
    await plane.change_object(INSTANCE, Key(INSTANCE.name, "default", "demo"), intent="Run")
    again = await _seen(plane, "Ready")
    assert (again.status.starts, again.status.job, ready.status.starts) == (2, "demo-2", 1)
    assert [found.name for found in await plane.jobs()] == ["demo-1", "demo-2"]
    await plane.real.delete(Key(INSTANCE.name, "default", "demo"))
    await plane.gone("demo-2")


@with_plane()
async def test_another_job_with_the_name_is_left_alone(plane: Plane) -> None:
    await plane.stop()
    await plane.submit("demo-1")
    await _prepared(plane)
    _Listening.open_ports = {80}
    plane.start()
    ready = await _seen(plane, "Ready")
    assert ready.status.job == "demo-2"
    other = await plane.job("demo-1")
    assert other is not None
    assert not other.metadata.owner_references
