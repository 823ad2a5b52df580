from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from isthmus.resources.frame import states


@pytest.mark.parametrize(
    ("phases", "table", "texts"),
    [
        (states.JobPhase, states.JOB_TRANSITIONS, states.JOB_PHASES),
        (states.ExperimentPhase, states.EXPERIMENT_TRANSITIONS, states.EXPERIMENT_PHASES),
        (states.SitePhase, states.SITE_TRANSITIONS, states.SITE_PHASES),
        (states.TenantPhase, states.TENANT_TRANSITIONS, states.TENANT_PHASES),
    ],
)
def test_every_phase_is_documented_and_reachable(
    phases: Any, table: Mapping[Any, frozenset[Any]], texts: Mapping[Any, str]
) -> None:
    assert set(table) == set(phases) == set(texts)
    first = next(iter(phases))
    reached, todo = {first}, [first]
    while todo:
        for after in table[todo.pop()] - reached:
            reached.add(after)
            todo.append(after)
    assert reached == set(phases)


def test_terminal_phases_are_those_without_a_way_out() -> None:
    assert {p for p in states.JobPhase if p.terminal} == {p for p, after in states.JOB_TRANSITIONS.items() if not after}


def test_a_step_that_is_not_in_the_table_is_a_fault() -> None:
    with pytest.raises(AssertionError):
        states.check_transition(states.JOB_TRANSITIONS, states.JobPhase.SUCCEEDED, states.JobPhase.RUNNING)
