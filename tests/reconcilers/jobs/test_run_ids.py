"""Runs of a job that was moved here: engines know them by the uid that the job had where it was first created."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest

import isthmus
from isthmus.config import ServerSettings
from isthmus.engines.base import Capabilities, Stream
from isthmus.reconcilers.experiments.comparing import run_of_job
from isthmus.reconcilers.jobs.engine_queues import EngineQueues
from isthmus.reconcilers.jobs.runs import run_of
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.resources.experiments import CELL_LABEL, POINT_ANNOTATION, REPETITION_LABEL
from isthmus.resources.jobs import Job, run_id_of
from isthmus.resources.kinds import JOB
from isthmus.resources.work.engine_options import SlurmOptions
from isthmus.runtime.informers import Informer
from isthmus.server.drivers import Drivers
from isthmus.server.logs import EngineLogs
from isthmus.store.base import Key, Record, Store
from isthmus.telemetry.updating import Telemetry
from isthmus.testing.fake_engine import FakeEngine, FakeMachine, Outcome

OLD, NEW = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


def imported(name: str = "moved", **spec: Any) -> Job:
    marks = {CELL_LABEL: "0", REPETITION_LABEL: "0"}
    return Job.model_validate(
        {
            "kind": "Job",
            "metadata": {
                "name": name, "namespace": "t", "uid": NEW, "generation": 1, "labels": marks,
                "annotations": {POINT_ANNOTATION: "{}"},
            },
            "spec": {"command": ["x"], **spec},
            "status": {
                "phase": "Running", "attempt": 2, "identity": OLD, "site": "here", "engineId": "7",
                "startedAt": "2026-01-01T00:00:00Z",
            },
        }
    )  # fmt: skip


def record_of(job: Job) -> Record:
    return Record(Key(JOB.name, job.namespace, job.name), NEW, 1, json.dumps(job.to_json()).encode())


class Known:
    """An informer of these jobs, as far as this matters."""

    def __init__(self, *jobs: Job) -> None:
        self._records = {record_of(job).key: record_of(job) for job in jobs}

    def get(self, key: Key) -> Record | None:
        return self._records.get(key)


def registry(engine: FakeEngine) -> EngineRegistry:
    engines = EngineRegistry()
    engines.put("here", engine)
    return engines


def test_there_is_one_way_to_name_a_run() -> None:
    job = imported()
    assert job.run_id == job.run(2) == run_id_of(job.to_json()) == f"{OLD}.2"
    assert run_of(job, None).id == f"{OLD}.2"
    found = run_of_job(job.to_json())
    assert found is not None
    assert found.run_id == f"{OLD}.2"


def test_nobody_builds_the_id_of_a_run_by_hand() -> None:
    by_hand = re.compile(r"uid[^{}\n]{0,20}\}\.\{|identity\}\.\{")
    sources = Path(isthmus.__file__).parent
    found = {
        str(path.relative_to(sources)) for path in sources.rglob("*.py") for _ in by_hand.finditer(path.read_text())
    }
    assert found <= {"resources/jobs.py", "testing/engines/working.py"}


def test_one_that_waits_for_a_moved_job_waits_for_its_run() -> None:
    engine = FakeEngine()
    engine.capabilities = Capabilities(queues=True, dependencies=True, options=SlurmOptions)
    queues = EngineQueues(cast(Informer, Known(imported())), registry(engine))
    waiting = imported("next", dependencies=[{"job": "moved"}], slurm={})
    waiting.status.dependencies = None
    queued = queues.queued(waiting)
    assert queued is not None
    assert [after.run_id for after in queued.after] == [f"{OLD}.2"]


def test_a_section_goes_only_to_an_engine_that_reads_it() -> None:
    reads, other = FakeEngine(), FakeEngine()
    reads.capabilities = Capabilities(options=SlurmOptions)
    engines = registry(reads)
    engines.put("other", other)
    queues = EngineQueues(cast(Informer, Known()), engines)
    assert queues.only_site(imported(slurm={"partition": "p"})) == "here"
    assert queues.only_site(imported()) is None


@pytest.mark.anyio
async def test_log_journal_and_series_of_a_moved_job_are_found(tmp_path: Path) -> None:
    job = imported()
    machine = FakeMachine()
    machine.outcome = lambda _: Outcome(after=None, log=b'isthmus: {"loss": 0.5}\n')
    engine = FakeEngine(machine)
    await engine.submit(run_of(job, None))
    machine.runs[job.run_id].samples += b"1767225601 2.0 50 - - 23\n"
    logs = EngineLogs(cast(Store, None), registry(engine), cast(Drivers, None))
    assert (await logs.samples(job, 2, 0, 100)).startswith(b"1767225601")
    telemetry = Telemetry(tmp_path / "series.db", logs)
    await telemetry.open()
    try:
        found = await telemetry.read(job, 2)
        assert found.series["reported.loss"][0][1] == 0.5
        assert (await telemetry.latest(job))["reported.loss"][1] == 0.5
    finally:
        await telemetry.close()


@pytest.mark.anyio
async def test_who_does_not_lead_opens_a_site_only_to_read(tmp_path: Path) -> None:
    job, machine = imported(), FakeMachine()
    machine.outcome = lambda _: Outcome(after=None, log=b"printed\n")
    await FakeEngine(machine).submit(run_of(job, None))

    class Sites:
        async def get(self, key: Key) -> Record:
            spec = {"kind": "Site", "metadata": {"name": key.name}, "spec": {"driver": "fake"}}
            return Record(key, "s", 1, json.dumps(spec).encode())

    drivers = Drivers(ServerSettings(data=tmp_path), {"fake": lambda site, settings: FakeEngine(machine)})
    logs = EngineLogs(cast(Store, Sites()), EngineRegistry(), drivers)
    try:
        assert await logs.read(job, 2, Stream.STDOUT, 0, 100) == b"printed\n"
        assert machine.opened == set(), "nobody but the leader works there"
    finally:
        await logs.close()
