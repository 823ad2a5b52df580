"""What may change of an object, and when."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.errors import Invalid
from isthmus.resources.frame.changing import check_change
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EXPERIMENT, JOB


def job(phase: str, **spec: Any) -> dict[str, Any]:
    obj = {"metadata": {"name": "train"}, "spec": {"command": ["true"], **spec}, "status": {"phase": phase}}
    return validate(JOB, obj)


@pytest.mark.parametrize("phase", list(JobPhase))
def test_what_was_promised_never_changes_and_what_is_wanted_always(phase: str) -> None:
    check_change(JOB, job(phase), job(phase, intent="Cancel", ttlAfterFinished="1h"))
    with pytest.raises(Invalid, match=r"Job 'train' cannot change spec.command any more; only deadline, intent"):
        check_change(JOB, job(phase), job(phase, command=["false"], priority=1))


@pytest.mark.parametrize("phase", list(JobPhase))
def test_what_only_matters_until_the_end_changes_until_then(phase: JobPhase) -> None:
    before, after = job(phase), job(phase, priority=7, retries={"limit": 2}, intent="Hold")
    if not phase.terminal:
        check_change(JOB, before, after)
        return
    with pytest.raises(Invalid, match=rf"'train' is {phase} and cannot change spec.priority, spec.retries") as caught:
        check_change(JOB, before, after)
    assert [cause.field for cause in caught.value.causes] == ["spec.priority", "spec.retries"]
    assert "before it has ended" in caught.value.message


def test_it_is_said_in_words() -> None:
    assert JOB.when("intent") == "at any time"
    assert EXPERIMENT.when("parallel") == "before it has ended"
