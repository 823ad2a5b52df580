"""The replay: every job runs once, and bad traces are named."""

from __future__ import annotations

import pytest

from benchmarks.pools.command import call
from benchmarks.pools.policies import POLICIES
from benchmarks.pools.replaying import Replay
from benchmarks.pools.traces import KUBERNETES, SLURM, Pattern, TracedJob, generated, swf
from isthmus.errors import Invalid
from isthmus.scheduling.pools.machine_models import MoveTimes

LINE = "1 100 5 3600 64 -1 -1 64 7200 -1 1 4 1 -1 1 1 -1 -1"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_job_runs_once(policy: str) -> None:
    jobs = generated(Pattern.BURSTS, hosts=8, days=0.2, load=0.6, seed=3)
    seen = Replay(jobs, 8, POLICIES[policy], MoveTimes()).run()
    assert {pool: len(waits) for pool, waits in seen.waits.items()} == {
        pool: sum(job.pool == pool for job in jobs) for pool in (SLURM, KUBERNETES)
    }
    assert min(seen.waits[SLURM] + seen.waits[KUBERNETES]) >= 0


def test_a_trace_in_the_standard_workload_format_is_read() -> None:
    jobs = list(swf(["; UnixStartTime: 0", "", LINE, LINE.replace(" 3600 ", " -1 ")], cores=32))
    assert jobs == [TracedJob(100.0, SLURM, 2, 3600.0, 7200.0)], "the second one never ran"


@pytest.mark.parametrize(
    ("line", "says"), [("1 2 3", "line 1: 3 fields"), (LINE.replace("64", "x"), "line 1: a field is not a number")]
)
def test_a_bad_trace_is_named_by_its_line(line: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        list(swf([line], cores=32))


def test_the_decision_is_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.pools.command.SIZES", ((10, 100),))
    assert call(["--decision"]) == 0
    assert "| 10 | 100 |" in capsys.readouterr().out
