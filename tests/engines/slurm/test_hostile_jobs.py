"""Jobs that write into every file of theirs that the control plane reads: they hurt themselves, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from isthmus.engines.base import Run, RunState, Stream
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.observing import liveness
from isthmus.errors import SiteUnavailable
from isthmus.testing.engines import new_run_id, until, wait_ended, whole_log

from .conftest import AKIDA, MakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.real]

NAMES = ("ended", "begun", "units", "samples", "slurm.out", "stdout", "launch", "barred")
LEFT = {
    "garbage": r'''printf '\377\376=\302\262\n\000\033[31m[{(' > "$p"''',
    "a folder": 'mkdir "$p"',
    "a pipe": 'mkfifo "$p"',
    "a link": 'ln -s /etc/passwd "$p"',
    "huge": 'truncate -s 64M "$p"',
}
WORD = r"""printf 'job=%s\ncode=0\nstart=1763000000\nend=1763000001\npeak=\302\262\n' $SLURM_JOB_ID > ../ended"""
OTHERS = "printf '1 n\n' > ../begun"


def hostile(name: str, left: str, *, and_kills: bool) -> Run:
    """Makes what is there anew, and may end the batch script before it can put it right."""
    script = f'p="$PWD/../{name}"; rm -rf "$p"; {LEFT.get(left, left)}' + ("; kill -9 $PPID" if and_kills else "")
    return Run(new_run_id(), "t", "hostile", command=("/bin/sh", "-c", script), milli_cpus=250)


async def test_whatever_a_job_leaves_others_go_on(
    engine: SlurmEngine, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "QUIET_SECONDS", 5.0)  # one that names another's job as the one that began it
    await engine.probe([AKIDA])
    lasting = Run(new_run_id(), "t", "lasting", command=("sleep", "1000"), milli_cpus=250)
    await engine.submit(lasting)
    runs = {
        left: [
            *(hostile(name, left, and_kills=n % 2 == 0) for n, name in enumerate(NAMES)),
            hostile("ended", WORD, and_kills=True),
            hostile("begun", OTHERS, and_kills=True),
        ]
        for left in LEFT
    }
    every = [run for some in runs.values() for run in some]
    await asyncio.gather(*(engine.submit(run) for run in every))
    # The batch script may wait at a pipe for ever: that is its own harm.
    await asyncio.gather(*(cancel_begun(engine, run.id) for run in runs["a pipe"][: len(NAMES)]))
    ends = await asyncio.gather(*(wait_ended(engine, run.id) for run in every))
    assert all(end.message.isprintable() for end in ends)
    for run in every:
        assert len(await engine.read_log(run.id, Stream.STDOUT, 0, 100)) <= 100
        await engine.read_samples(run.id, 0, 100)
    good = Run(new_run_id(), "t", "good", command=("/bin/sh", "-c", "echo fine"), milli_cpus=250)
    await engine.submit(good)
    end = await wait_ended(engine, good.id)
    assert (end.exit_code, await whole_log(engine, good.id)) == (0, b"fine\n")
    watcher = next(task for task in engine.tasks.vital() if task.name == "slurm-watcher")
    assert watcher.failures == 0, "what one job left ended the watcher of all"
    second = await make_engine()  # a control plane that starts again reads all of it once more
    seen = await second.observe(lasting.id)
    assert seen is not None
    assert seen.state is RunState.RUNNING
    assert second.tasks.failures() == {}


async def cancel_begun(engine: SlurmEngine, run_id: str) -> None:
    async def ended() -> bool:
        seen = await engine.observe(run_id)
        if seen is not None and seen.state is RunState.RUNNING:
            with contextlib.suppress(SiteUnavailable):  # it ended at this very moment, or is asked again
                await engine.cancel(run_id)
            await asyncio.sleep(1)
        return seen is not None and seen.state is RunState.ENDED

    await until(ended, f"the end of run {run_id}")
