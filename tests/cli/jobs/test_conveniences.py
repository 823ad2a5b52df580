"""Conveniences of the command line and the Python client: task files, GPUs, reruns, dry runs, results as text."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from isthmus import Client, JobFailed
from isthmus.cli.jobs.gpus import gpu_classes
from isthmus.cli.jobs.rerun import rerun_manifest
from isthmus.cli.jobs.run_words import RunOptions
from isthmus.cli.jobs.tasks import with_task
from isthmus.cli.jobs.top import table
from isthmus.errors import Invalid


def test_a_task_file_says_what_options_say() -> None:
    document = {
        "command": "python train.py --lr 0.1", "cpus": 4, "gpus": 1, "env": {"A": 1}, "outputs": "out/*.csv",
        "devices": {"akida": 2}, "time": "1h", "sites": ["a", "b"],
    }  # fmt: skip
    read = with_task(RunOptions(words=("task.yaml", "--epochs", "3"), time="2h"), document)
    assert read == RunOptions(
        words=("python", "train.py", "--lr", "0.1", "--epochs", "3"), cpus="4", gpus=1, env=("A=1",),
        outputs=("out/*.csv",), device=("akida:2",), time="2h", site=("a", "b"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("document", "reported"),
    [
        ({"cpus": 1}, "has no command"),
        ({"command": "true", "memroy": "1G"}, "did you mean memory"),
        ({"command": "true", "token": "x"}, "has no field 'token'"),
        ({"command": {"a": 1}}, "must be a text"),
        ({"command": "true", "nodes": "two"}, "whole number"),
        ({"command": "echo 'open"}, "cannot be read"),
    ],
)
def test_wrong_task_files_are_explained(document: dict[str, Any], reported: str) -> None:
    with pytest.raises(Invalid, match=reported):
        with_task(RunOptions(words=("task.yaml",)), document)


def test_gpus_are_known_by_what_engines_call_them() -> None:
    def device(name: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": spec}

    found = [
        device("a100", slurm={"gres": "gpu:a100"}), device("l4", kubernetes={"resource": "nvidia.com/gpu"}),
        device("gpu"), device("akida", slurm={"gres": "board:akida"}), device("cpu"),
    ]  # fmt: skip
    assert gpu_classes(found) == ["a100", "gpu", "l4"]


def test_a_rerun_is_a_new_job_with_changes() -> None:
    job = {
        "apiVersion": "isthmus.dev/v1", "kind": "Job",
        "metadata": {"name": "train-x7k2p", "namespace": "lab", "uid": "u", "labels": {"a": "b",
                     "isthmus.dev/array": "x"}},
        "spec": {"command": ["true"], "intent": "Cancel", "resources": {"cpus": "1"},
                 "env": [{"name": "A", "value": "1"}]},
        "status": {"phase": "Failed"},
    }  # fmt: skip
    made = rerun_manifest(job, {"resources": {"memory": "2Gi"}, "placement": {}}, {"A": "2"})
    assert re.fullmatch(r"train-[a-z0-9]{5}", made["metadata"].pop("name"))
    assert made["metadata"] == {"namespace": "lab", "labels": {"a": "b"}}
    assert made["spec"] == {
        "command": ["true"], "resources": {"cpus": "1", "memory": "2Gi"}, "env": [{"name": "A", "value": "2"}],
    }  # fmt: skip
    assert "status" not in made
    assert job["spec"]["resources"] == {"cpus": "1"}  # type: ignore[index]


@pytest.mark.real
def test_a_task_runs_and_is_run_again(isthmus: Any, work: Path) -> None:
    (work / "task.yaml").write_text("command: sh -c 'echo $WORD; cat note.txt'\nenv: {WORD: one}\nname: task-1\n")
    (work / "note.txt").write_text("a note\n")
    assert isthmus("run", "task.yaml").stdout == "one\na note\n"
    (work / "note.txt").unlink()
    again = isthmus("rerun", "task-1", "-e", "WORD=two")
    assert (again.returncode, again.stdout) == (0, "two\na note\n"), again.stderr


@pytest.mark.real
def test_a_dry_run_checks_and_keeps_nothing(isthmus: Any, work: Path) -> None:
    (work / "job.yaml").write_text(
        "apiVersion: isthmus.dev/v1\nkind: Job\nmetadata: {name: dry}\nspec: {command: ['true']}\n"
    )
    for words in (("submit", "--dry-run", "job.yaml"), ("apply", "--dry-run", "-f", "job.yaml")):
        done = isthmus(*words)
        assert done.returncode == 0, done.stderr
        assert "dry run" in done.stdout
    assert isthmus("get", "job", "dry").returncode == 3
    (work / "job.yaml").write_text("apiVersion: isthmus.dev/v1\nkind: Job\nmetadata: {name: dry}\nspec: {command: x}\n")
    assert isthmus("submit", "--dry-run", "job.yaml").returncode == 2


@pytest.mark.real
def test_jobs_in_python_as_text_and_checked(server: Any) -> None:
    with Client(server.url, server.token) as client:
        good = client.run("echo héllo", files=None).wait(check=True)
        assert good.text() == "héllo\n"
        assert "Succeeded" in good._repr_html_()
        bad = client.run(["sh", "-c", "exit 3"], files=None, name="<b>".strip("<>") + "ad-end")
        with pytest.raises(JobFailed, match="exit code 3"):
            bad.wait(check=True)
        bad.delete()


@pytest.mark.real
def test_runs_of_experiments_are_not_listed_among_jobs(isthmus: Any) -> None:
    done = isthmus("compare", "--no-files", "--param", "n=1,2", "--name", "folded", "--", "true")
    assert done.returncode == 0, done.stderr
    listed = json.loads(isthmus("jobs", "--limit", "0", "-o", "json").stdout)["items"]
    assert not [
        job for job in listed if (job["metadata"].get("labels") or {}).get("isthmus.dev/experiment") == "folded"
    ]
    elements = json.loads(isthmus("jobs", "--mine", "-e", "--limit", "0", "-o", "json").stdout)["items"]
    assert sum(job["metadata"]["name"].startswith("folded-") for job in elements) == 2, "they are their submitter's"


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_line_of_top_is_longer_than_the_terminal_is_wide(columns: int) -> None:
    def series(name: str, unit: str, source: str = "") -> dict[str, Any]:
        return {"name": name, "unit": unit, "source": source, "points": [[n, n * 1.5] for n in range(60)]}

    found = {"series": [series("cpu", "cores"), series("memory", "bytes"), series("power", "watts", "estimated")]}
    job = {"metadata": {"name": "train-with-a-very-long-name-" * 3}, "status": {"site": "a-site-with-a-long-name"}}
    rows = table([(job, found), (job, {})], 3, columns)
    assert max(map(len, rows)) <= columns
    assert (len(rows), "not measured yet" in rows[2], rows[3]) == (4, columns > 40, "and 1 more")
    if columns >= 80:
        assert "88.50 cores" in rows[1]
        assert "~88.5 W" in rows[1]
    assert ("█" in rows[1]) == (columns == 200)
    assert table([], 0, columns) == ["no job is running"]


@pytest.mark.real
def test_top_shows_all_that_runs(isthmus: Any) -> None:
    name = isthmus("run", "-d", "-q", "--no-files", "--name", "busy-top", "--", "sleep", "600").stdout.strip()
    try:
        for _ in range(100):
            shown = isthmus("top").stdout
            if name in shown:
                break
        assert name in shown
        assert "local" in shown
    finally:
        isthmus("cancel", "--wait", name)


@pytest.mark.real
def test_q_leaves_top(server: Any, environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "isthmus.cli", "top", "--url", server.url, "--token", server.token]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(words[0], words, environment)
    seen = b""
    while b"JOB" not in seen and b"no job" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"q")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def test_files_of_a_running_job(isthmus: Any, work: Path) -> None:
    fills = "mkdir out; echo 1,2 > out/loss.csv; ln -s /etc/passwd stolen; touch $(printf 'b\\033]0;x')"
    lines = f"{fills}; echo ready; sleep 300"
    name = isthmus("run", "-q", "-d", "--no-files", "--", "sh", "-c", lines).stdout.strip()
    while "ready" not in isthmus("logs", name).stdout:
        time.sleep(0.1)
    found = isthmus("files", name)
    assert "out/loss.csv" in found.stdout
    assert "stolen (link)" in found.stdout
    assert "\x1b" not in found.stdout
    assert isthmus("files", name, "out/loss.csv").stdout == "1,2\n"
    assert isthmus("files", name, "out/loss.csv", "--to", "here.csv").returncode == 0
    assert (work / "here.csv").read_text() == "1,2\n"
    listed = json.loads(isthmus("files", name, "-o", "json").stdout)
    assert {file["kind"] for file in listed["files"]} == {"File", "Link"}
    for path in ("stolen", "../stdout.log", "/etc/passwd"):
        wrong = isthmus("files", name, path, "--to", "none")
        assert wrong.returncode == 3, path
        assert not (work / "none").exists()
    isthmus("cancel", name)
    isthmus("job", name, "--wait")
    assert "is over" in isthmus("files", name).stderr
