"""What must hold for every method, and for every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.scheduling.methods import METHODS, method
from benchmarks.scheduling.simulating import check_plan
from isthmus.scheduling.deadlines.models import Snapshot
from tests.scheduling.deadlines.examples import restartable, snapshots

ROOT = Path(__file__).parents[3]
PREEMPTIVE = [name for name in METHODS if name not in ("fifo", "edf", "priority", "isthmus")]


@pytest.mark.parametrize("name", PREEMPTIVE)
@settings(max_examples=25, deadline=None)
@given(snapshot=snapshots())
def test_known_methods_keep_the_rules_too(name: str, snapshot: Snapshot) -> None:
    snapshot = restartable(snapshot)
    check_plan(snapshot, method(name, iterations=5)(snapshot))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshots())
def test_the_same_seed_gives_the_same_plan(snapshot: Snapshot) -> None:
    free = restartable(snapshot)
    for name in ("random-greedy", "path-relinking"):
        assert method(name, seed=3, iterations=4)(free) == method(name, seed=3, iterations=4)(free)


_PROGRAM = """
import json
from benchmarks.scheduling.tables import read_prices, read_profiles, shipped
from benchmarks.scheduling.generating import Scenario, generate
from benchmarks.scheduling.methods import method
from benchmarks.scheduling.simulating import simulate
catalogue = read_prices(shipped("machines.csv"))
made = generate(Scenario.MIXED, 3, read_profiles(shipped("profiles.csv"), catalogue), catalogue, 5)
names = ("edf", "greedy", "path-relinking", "isthmus")
print(json.dumps({name: simulate(made, method(name, iterations=5)).cost for name in names}))
"""


def test_the_same_seed_gives_the_same_costs_in_every_process() -> None:
    answers = []
    for seed in ("1", "2"):
        environment = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=str(ROOT))
        out = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, check=True)
        answers.append(json.loads(out.stdout))
    assert answers[0] == answers[1]
