"""Killed between any two effects, a local site loses no run, runs none twice, and reports every end as it was.

The points are not listed here: a first pass records each effect that the life of two runs reaches, in the control plane
and in the supervisors; then one of them is killed after each. An ordinary run takes some by chance, `--all-variants
--crash-points all` takes all, and `ISTHMUS_TEST_SEED` repeats a choice. How often a run was executed is counted in a
file of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, Observation, Run
from isthmus.engines.local import devices, driver, layout, observing, staging
from isthmus.engines.local.driver import LocalEngine
from isthmus.errors import SiteUnavailable
from isthmus.testing.effects import ON_DISK, bare_effects, choose
from isthmus.testing.engines import new_run_id, until, wait_ended

from .conftest import ACCOUNT, MakeEngine

pytestmark = pytest.mark.anyio
BY_CHANCE = 2
"""Points, in each of the two."""

LIFE = """
import asyncio, json, os, sys
from pathlib import Path
root, watched, point, record, runs, account, source = json.loads(sys.argv[1])
wish = {name: value for name, value in (("ISTHMUS_CRASH_AT", point), ("ISTHMUS_CRASH_RECORD", record)) if value}
if watched == "plane":
    os.environ.update(wish)
import isthmus._kit.crashpoints
for name in wish:
    os.environ.pop(name, None)
if watched == "supervisor":
    os.environ.update(wish)
from isthmus.engines.base import Account, Run
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import LocalSettings
from isthmus.testing.engines import FolderSource, wait_ended

async def main():
    engine = LocalEngine(LocalSettings(Path(root), isolation="None", visible=()))
    await engine.open()
    files = FolderSource(Path(source), {"sent": b"x", "below/link": b"y"})
    for fields in runs:
        await engine.submit(Run(**fields, account=Account(**account)), files)
    await engine.cancel(runs[1]["id"], grace=0)
    for fields in runs:
        await wait_ended(engine, fields["id"])
        await engine.tidy(fields["id"])
    for fields in runs:
        print("forget", fields["id"], flush=True)
        await engine.forget(fields["id"])
    await engine.stop_keeper()
    await engine.close()

asyncio.run(main())
"""


class Life:
    """Two runs in one folder: one ends by itself, one is cancelled."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o711)
        self.root, self.source, self.counts = folder / "site", folder / "sent", folder / "counts"
        self.counts.mkdir(mode=0o777)
        self.counts.chmod(0o777)
        self.fields = [self._run("echo x >> {}; sleep 0.1"), self._run("echo x >> {}; exec sleep 1000")]

    def _run(self, script: str) -> dict[str, object]:
        run_id = new_run_id()
        command = ["/bin/sh", "-c", script.format(self.counts / run_id)]
        return {"id": run_id, "namespace": "n", "job": "j", "command": command, "separate_streams": True}

    @property
    def runs(self) -> list[Run]:
        return [Run(**{**f, "command": tuple(f["command"])}, account=ACCOUNT) for f in self.fields]  # type: ignore

    def go(self, watched: str, point: str = "", record: str = "") -> tuple[int, str]:
        """Live in another process; how that ended, and which runs it was about to forget."""
        words = [str(self.root), watched, point, record, self.fields, {"uid": ACCOUNT.uid}, str(self.source)]
        done = subprocess.run(
            [sys.executable, "-c", LIFE, json.dumps(words)], capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout

    def executed(self, run: Run) -> int:
        path = self.counts / run.id
        return len(path.read_text().split()) if path.exists() else 0


@pytest.fixture
def top(open_folder: Path) -> Path:
    return open_folder.parent


async def ended(engine: LocalEngine, run: Run, *, cancelled: bool) -> Observation:
    async def submitted() -> bool:
        with contextlib.suppress(SiteUnavailable):
            return bool(await engine.submit(run))
        return False

    await until(submitted, "the run to be submitted")
    if cancelled:
        await engine.cancel(run.id, grace=0)
    return await wait_ended(engine, run.id)


async def check(engine: LocalEngine, life: Life, point: str, about_to_forget: str, *, supervisor: bool) -> None:
    """Go on where the other was killed, to the end."""
    for run, wanted in zip(life.runs, (EndReason.COMPLETED, EndReason.CANCELLED), strict=True):
        if run.id not in about_to_forget:
            end = await ended(engine, run, cancelled=wanted is EndReason.CANCELLED)
            lost = supervisor and end.reason is EndReason.SUPERVISOR_LOST
            assert lost or end.reason is wanted, (point, end.reason, end.message, end.exit_code, end.signal)
            assert lost or wanted is EndReason.CANCELLED or life.executed(run) == 1, point
        assert life.executed(run) <= 1, point

        async def forgotten(run: Run = run) -> bool:
            await engine.forget(run.id)
            return not engine._layout.run(run.id).path.exists()

        await until(forgotten, f"the run to be forgotten after {point}")
        assert not list(engine._layout.staging.rglob(f"*{run.id}*")), point


@pytest.mark.parametrize("watched", ["plane", "supervisor"])
@pytest.mark.timeout(1800)
async def test_killed_after_any_effect(
    watched: str, top: Path, make_engine: MakeEngine, request: pytest.FixtureRequest
) -> None:
    record = top / "points"
    assert Life(top / "recorded").go(watched, record=str(record))[0] == 0
    points = list(dict.fromkeys(record.read_text().split()))
    asked, seed = request.config.getoption("--crash-points"), int(os.environ["ISTHMUS_TEST_SEED"])
    chosen = choose(points, str(BY_CHANCE) if asked.isdigit() else asked, random.Random(seed))
    print(f"{len(points)} points in the {watched}, {len(chosen)} of them; ISTHMUS_TEST_SEED={seed}")
    for number, point in enumerate(chosen):
        life = Life(top / str(number))
        code, about_to_forget = life.go(watched, point)
        assert watched == "supervisor" or code == -signal.SIGKILL, point
        engine = await make_engine(root=life.root, isolation="None")
        if watched == "supervisor":
            await engine.stop_keeper()  # which would have the next one killed as well
        await check(engine, life, point, about_to_forget, supervisor=watched == "supervisor")
        await engine.stop_keeper()


def test_every_change_of_files_passes_a_point() -> None:
    modules = (staging, layout, driver, devices, observing)
    effects = ON_DISK - {"replace"}  # of texts
    found = [line for module in modules for line in bare_effects(Path(module.__file__ or "").read_text(), effects)]
    # What a lock lies in is made, and says nothing; how a log is continued is copied before anybody sees it.
    assert [line for line in found if "O_RDWR" not in line and "os.ftruncate" not in line] == []
