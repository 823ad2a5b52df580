"""The names of files that the output is kept as; what the engines do with them is in their own tests."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.engines.batch_scripts import number_of
from isthmus.reconcilers.jobs.log_files import file_name, log_patterns
from isthmus.resources.jobs import Job

ARRAY = "0192f0aa-0000-7000-8000-000000000001"
OWN = "0192f0aa-0000-7000-8000-000000000002"


def job(pattern: str = "x", *, element: bool = False, **spec: Any) -> Job:
    owner = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "name": "sweep", "uid": ARRAY}
    labels = {"isthmus.dev/array": "sweep", "isthmus.dev/array-index": "12"} if element else {}
    owners = [owner] if element else []
    return Job.model_validate({
        "metadata": {"name": "train-x7", "namespace": "lab", "uid": OWN, "labels": labels, "ownerReferences": owners},
        "spec": {"command": ["true"], "logFiles": {"stdout": pattern}, **spec},
        "status": {"phase": "Finishing", "engineId": "4711"},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("slurm-%j.out", "slurm-4711.out"),
        ("logs/%x_%A_%a.out", f"logs/My Train_{number_of(ARRAY)}_12.out"),
        ("%8j-%5a.txt", "00004711-00012.txt"),
        ("100%%.out", "100%.out"),
        ("./here.out", "here.out"),
        ("%q.out", "%q.out"),
        ("%N-%u-%t.out", "*-*-0.out"),
        ("a[1]*.out", "a[[]1][*].out"),
    ],
)
def test_names_are_what_slurm_makes_of_them(pattern: str, path: str) -> None:
    named = [{"name": "SLURM_JOB_NAME", "value": "My Train"}]
    assert log_patterns(job(pattern, element=True, env=named), numbers=True) == [path]


def test_a_job_that_is_no_element_has_the_index_that_slurm_gives_it() -> None:
    assert log_patterns(job("%A_%a"), numbers=True) == ["4711_4294967294"]


def test_where_slurm_gives_no_number_it_is_made_of_the_uid_and_no_job_of_slurms_has_it() -> None:
    found = file_name(job(), "slurm-%j.out")
    assert found == f"slurm-{number_of(OWN)}.out"
    assert log_patterns(job("slurm-%j.out"), numbers=False) == [found]
    assert 2**26 <= number_of(OWN) < 2**31


def test_names_begin_where_the_job_starts() -> None:
    assert log_patterns(job("x.out", workingDir="a/b"), numbers=True) == ["a/b/x.out"]
    assert log_patterns(job("x.out", workingDir="."), numbers=True) == ["x.out"]


def test_the_file_of_a_stream_that_there_is_not_is_none() -> None:
    both = {"stdout": "out", "stderr": "err"}
    assert log_patterns(job(logFiles=both), numbers=True) == ["out"]
    assert log_patterns(job(logFiles=both, streams="Separate"), numbers=True) == ["out", "err"]


@pytest.mark.parametrize("name", ["../..", "..", "/etc", "a/../../b"])
def test_a_name_of_the_job_leads_nowhere(name: str) -> None:
    found = file_name(job(env=[{"name": "SLURM_JOB_NAME", "value": name}]), "%x/x.out")
    assert found
    assert ".." not in found.split("/")


@pytest.mark.parametrize("pattern", ["../x", "a/../../x", "/x", "%j/.."])
def test_what_leaves_the_folder_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"below the job's own folder|should match pattern"):
        job(pattern)
