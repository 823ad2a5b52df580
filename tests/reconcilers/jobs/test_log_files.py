from __future__ import annotations

from typing import Any

import pytest

from isthmus.reconcilers.jobs.log_files import expand
from isthmus.resources.jobs import Job


def job(labels: dict[str, str] | None = None, **status: Any) -> Job:
    return Job.model_validate({
        "metadata": {"name": "train-x7", "namespace": "lab", "labels": labels or {}},
        "spec": {"command": ["true"]},
        "status": {"phase": "Finishing", **status},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("slurm-%j.out", "slurm-4711.out"),
        ("logs/%x_%A_%a.out", "logs/train-x7_sweep_12.out"),
        ("%8j-%5a.txt", "00004711-00012.txt"),
        ("100%%.out", "100%.out"),
        ("./here.out", "here.out"),
        ("%q.out", "%q.out"),
    ],
)
def test_names_are_what_slurm_makes_of_them(pattern: str, path: str) -> None:
    array = {"isthmus.dev/array": "sweep", "isthmus.dev/array-index": "12"}
    assert expand(pattern, job(array, engineId="4711")) == path


def test_elsewhere_than_at_slurm_the_name_stands_for_the_number() -> None:
    assert expand("slurm-%j.out", job(engineId="pod-a")) == "slurm-train-x7.out"


@pytest.mark.parametrize("pattern", ["../x", "a/../../x", "a//b", "%%/../.."])
def test_what_leaves_the_folder_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="path inside a folder"):
        expand(pattern, job())
