"""slurmctld is killed around a submission: it forgets jobs, uses their numbers again, launches what runs already, and
calls some cancelled. Whatever it says, no run is carried out twice, and nobody's cancel is claimed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, Observation, Run, RunState
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.observing import liveness
from isthmus.engines.slurm.opening import make_engine
from isthmus.errors import IsthmusError
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings
from isthmus.testing.engines import new_run_id
from isthmus.testing.slurm import running_slurm

from .conftest import settings_of

pytestmark = [pytest.mark.real, pytest.mark.anyio, pytest.mark.timeout(600)]
ROUNDS, AT_ONCE = 4, 3
PATIENCE = 150.0
QUIET = 30.0
"""Seconds of silence after which what Slurm does not know is lost: jobs so young write every second."""


@pytest.fixture
def own_lab(release: str) -> Iterator[SlurmLab]:
    with running_slurm(3, LabSettings(accounting=True, release=release)) as made:
        yield made


@pytest.fixture
async def site(own_lab: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlurmEngine]:
    monkeypatch.setattr(liveness, "QUIET_SECONDS", QUIET)
    engine = make_engine(settings_of(own_lab))
    await engine.open()
    yield engine
    await engine.close()


async def end_of(engine: SlurmEngine, lab: SlurmLab, run: Run) -> Observation:
    """How a run ended. One that Slurm lost before it began is submitted again, as the control plane does."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(IsthmusError):
            seen = await engine.observe(run.id) or await engine.submit(run)
            if seen.state is RunState.ENDED:
                return seen
        # Slurm itself takes nodes away from everybody when it has launched a job twice.
        for node in lab.call("sinfo", "-h", "-N", "-t", "drain", "-o", "%N", check=False).split():
            lab.call("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        await asyncio.sleep(0.5)
    raise AssertionError(f"run {run.id} did not end: {await engine.observe(run.id)}")


def _known(lab: SlurmLab, run: Run, end: Observation) -> list[str]:
    """What there is to know of a run, for whoever has to find out what went wrong."""
    folder = next(lab.place.shared.glob(f"*/runs/{run.id}"))
    found = [
        f"{name}: {(folder / name).read_text()}" for name in ("begun", "ended", "slurm.out") if (folder / name).exists()
    ]
    words = [
        "-D",
        "-n",
        "-X",
        "-P",
        "-j",
        end.engine_id or "0",
        "--format=JobID,State,ExitCode,NodeList,Submit,Start,End",
    ]
    return [*found, lab.call("sacct", *words, check=False)]


async def test_slurmctld_is_killed_around_a_submission(own_lab: SlurmLab, site: SlurmEngine) -> None:
    seed = int(os.environ["ISTHMUS_TEST_SEED"])
    print(f"ISTHMUS_TEST_SEED={seed}")
    chance = random.Random(seed)
    runs: list[tuple[Run, Path]] = []
    for _ in range(ROUNDS):
        for _ in range(AT_ONCE):
            count = own_lab.place.shared / f"count-{new_run_id()}"
            count.touch()
            count.chmod(0o666)
            script = f"echo ran >> {count}; sleep {chance.choice((0, 1, 2))}; echo end >> {count}"
            runs.append((Run(new_run_id(), "t", "killed", command=("/bin/sh", "-c", script)), count))
            with contextlib.suppress(IsthmusError):
                await site.submit(runs[-1][0])
            await asyncio.sleep(chance.random() * 0.4)
        await asyncio.sleep(chance.random() * 2)
        await asyncio.to_thread(own_lab.stop_controller, kill=True)
        await asyncio.to_thread(own_lab.start_controller)
    for run, count in runs:
        end = await end_of(site, own_lab, run)
        did = count.read_text().split()
        seen = (end.reason, end.exit_code, end.signal, end.message, did, _known(own_lab, run, end))
        assert did in ([], ["ran"], ["ran", "end"]), seen
        assert end.reason is not EndReason.CANCELLED, seen
        if did == ["ran", "end"]:
            assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 0), seen
        else:
            assert end.exit_code != 0, seen
