"""Why a job waits, in sentences; what is said at its end; and which name was meant."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.cli.jobs.running import unusual_end
from isthmus.cli.jobs.waiting import where, why_waiting
from isthmus.client.missing_names import nearest


def job(phase: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"command": ["python", "a"]}, "status": {"phase": phase, **status}}


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (job("Pending", message="no site satisfies the job"), "job x waits: no site satisfies the job"),
        (job("Pending", message="waits for room at local"), "job x waits for room at local"),
        (job("Pending"), "job x waits to be placed"),
        (job("Placed", site="local"), "job x is placed at local"),
        (job("Queued", message="is held back by the engine"), "job x is held back by the engine"),
        (job("Running", message="something"), ""),
        (job("Succeeded"), ""),
    ],
)
def test_sentences(given: dict[str, Any], reported: str) -> None:
    assert why_waiting(given) == reported


def test_where_it_goes_and_why() -> None:
    assert where(job("Pending")) == ""
    assert where(job("Placed", site="hpc", siteMessage="2 of 2 CPUs free")) == "job x goes to hpc: 2 of 2 CPUs free"
    assert where(job("Placed", site="hpc", plan={"message": "in time"})) == "job x goes to hpc: in time"
    assert where(job("Running", site="hpc")) == "job x goes to hpc"


def test_python_without_a_number_is_explained() -> None:
    missing = job("Failed", reason="StartFailed", exitCode=127, message="The program 'python' was not found")
    assert "write python3" in unusual_end(missing)
    missing["spec"]["command"] = ["pyton"]
    assert unusual_end(missing) == "", "the job's own output names the program already"


def test_what_the_exit_code_does_not_say_is_said() -> None:
    status = {"phase": "Failed", "reason": "NonZeroExit", "exitCode": 1, "message": "ended with exit code 1"}
    assert unusual_end({"status": status}) == ""
    full = {**status, "message": "ended with exit code 1. The disk of the site was full when the job ended."}
    assert unusual_end({"status": full}) == "failed: The disk of the site was full when the job ended."


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("trian", ["train", "other"], "train"),
        ("train", ["train-x7k2p", "other"], "train-x7k2p"),
        ("trains", ["train", "trainz"], None),
        ("train", ["train-a", "train-b"], None),
        ("zzz", ["train"], None),
        ("train", [], None),
    ],
)
def test_a_name_is_proposed_only_without_doubt(name: str, names: list[str], meant: str | None) -> None:
    assert nearest(name, names) == meant
