"""Reading what Slurm writes: recorded output of 22.05, and the forms of newer versions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import EndReason, RunState
from isthmus.engines.slurm import calls, commands, documents, hostlists, parsing, states
from isthmus.engines.slurm.facts import SlurmNode
from isthmus.engines.slurm.inventories import node_state
from isthmus.errors import SiteUnavailable

RECORDED = Path(__file__).parent / "recorded"
HEADING = "F|JOBID|STATE|REASON|USER|PARTITION|SUBMIT_TIME|START_TIME|END_TIME|NODELIST|CPUS|NODES|COMMENT\n"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(recorded(name))
    return found


def test_squeue() -> None:
    jobs = parsing.jobs(recorded("squeue-22.05.txt"), "F")
    assert [job.id for job in jobs] == [1, 2, 7]
    first, held, running = jobs
    assert first.run_id == "abc.0"
    assert first.meaning.state is RunState.ENDED
    assert first.started_at == datetime(2026, 11, 15, 23, 11, 54, tzinfo=UTC)
    assert held.run_id is None
    assert held.started_at is None
    assert (running.nodes, running.cpus, running.node_count) == ("lab12n[1-2]", 4, 2)


def test_an_answer_without_heading_is_no_answer() -> None:
    for text in ("", "\n", "slurm_load_jobs error: timed out\n"):
        with pytest.raises(ValueError, match="heading"):
            parsing.jobs(text, "F")
    assert parsing.jobs(HEADING, "F") == []


def test_a_comment_with_line_breaks_passes_for_nobody_elses_job() -> None:
    forged = "99|COMPLETED|None|root|all|N/A|N/A|N/A|n1|1|1|isthmus:victim.0"
    text = f"{HEADING}F|5|RUNNING|None|eve|all|N/A|N/A|N/A|n1|1|1|hello\n{forged}\nF2|{forged}\n"
    assert [job.id for job in parsing.jobs(text, "F")] == [5]


def test_scontrol_show_job() -> None:
    job = parsing.job(recorded("scontrol-job-22.05.txt"))
    assert job is not None
    assert (job.id, job.user, job.states, job.exit_code, job.signal) == (1, "nobody", ("FAILED",), None, 11)
    assert job.run_id == "abc.0"


def test_the_first_word_of_a_name_counts() -> None:
    found = dict(parsing.pairs("JobId=1 JobState=RUNNING Comment=x JobState=COMPLETED"))
    assert found["JobState"] == "RUNNING"


def test_nodes_and_partitions() -> None:
    nodes = parsing.nodes(recorded("scontrol-nodes-22.05.txt"))
    assert [node.name for node in nodes] == ["lab12n1", "lab12n2", "lab12n3"]
    assert nodes[0].gres == (("board:akida", 1),)
    assert nodes[0].features == ("board", "akida")
    assert nodes[0].partitions == ("all", "short", "boards")
    assert nodes[0].memory_bytes == 1000 * 2**20
    assert nodes[0].usable
    partitions = {p.name: p for p in parsing.partitions(recorded("scontrol-partitions-22.05.txt"))}
    assert partitions["all"].default
    assert partitions["all"].max_seconds is None
    assert partitions["short"].max_seconds == 1800


def test_sacct() -> None:
    (row,) = parsing.accounted(recorded("sacct-22.05.txt"), ";")
    assert (row.id, row.exit_code, row.cpu_seconds) == (1, 3, 61.25)
    assert row.peak_memory_bytes == 167032 * 1024
    assert row.energy_joules == 180
    assert row.steps == 2
    assert row.work_dir == "/shared/runs/abc.0/work"


@pytest.mark.parametrize(
    ("text", "words", "usable", "shown"),
    [
        ("IDLE+DYNAMIC_NORM", {"IDLE", "DYNAMIC_NORM"}, True, "Ready"),
        ("MIXED+DRAIN", {"MIXED", "DRAIN"}, False, "Draining"),
        ("IDLE+DRAIN", {"IDLE", "DRAIN"}, False, "Drained"),
        ("DOWN*", {"DOWN", "NOT_RESPONDING"}, False, "Down"),
        ("IDLE~", {"IDLE"}, True, "Ready"),
        ("ALLOCATED+POWERING_DOWN", {"ALLOCATED", "POWERING_DOWN"}, True, "Powering"),
    ],
)
def test_states_of_nodes_are_sets_of_words(text: str, words: set[str], usable: bool, shown: str) -> None:
    node = SlurmNode("n", parsing.node_states(text))
    assert node.states == words
    assert node.usable is usable
    assert node_state(node) == shown


def test_generic_resources_and_units() -> None:
    assert parsing.gres("gpu:a100:2(S:0-1),board:akida:1,lamp:4,shard:8") == (
        ("board:akida", 1),
        ("gpu:a100", 2),
        ("lamp", 4),
        ("shard", 8),
    )
    assert parsing.gres("(null)") == ()
    text = "Nodes=n1 CPU_IDs=0 Mem=100 GRES=board:akida:2(IDX:0,3),gpu:a100:2(IDX:1-2)"
    assert parsing.units(text) == {"board:akida": ("0", "3"), "gpu:a100": ("1", "2")}


def test_times_and_amounts() -> None:
    assert parsing.clock("1-02:03:04") == 93784
    assert parsing.clock("02:03.5") == 123.5
    assert parsing.clock("") is None
    assert parsing.time_limit("7-00:00:00") == 604800
    assert parsing.time_limit("1-12") == 129600
    assert parsing.time_limit("UNLIMITED") is None
    assert parsing.amount("1.5G") == 1610612736
    assert parsing.amount("?") is None
    assert parsing.exit_status("42:0") == (42, None)
    assert parsing.exit_status("0:11") == (None, 11)
    assert parsing.moment("Unknown") is None


def test_hostlists() -> None:
    assert hostlists.expand("n[1-3,7],gpu02") == ["n1", "n2", "n3", "n7", "gpu02"]
    assert hostlists.expand("r[1-2]n[08-10]") == ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]
    assert hostlists.expand("(null)") == []
    with pytest.raises(ValueError, match=r"not a range"):
        hostlists.expand("n[1-999999999]")


# Every state and flag


@pytest.mark.parametrize(
    ("words", "state", "reason"),
    [
        (["PENDING"], RunState.QUEUED, None),
        (["CONFIGURING"], RunState.RUNNING, None),
        (["RUNNING", "CONFIGURING"], RunState.RUNNING, None),
        (["COMPLETING"], RunState.RUNNING, None),
        (["CANCELLED", "COMPLETING"], RunState.RUNNING, None),
        (["CANCELLED by 1000"], RunState.ENDED, EndReason.CANCELLED),
        (["PENDING", "REQUEUED"], RunState.QUEUED, None),
        (["PENDING+REQUEUE_HOLD"], RunState.QUEUED, None),
        (["FAILED", "LAUNCH_FAILED"], RunState.ENDED, EndReason.COMPLETED),
        (["OUT_OF_MEMORY"], RunState.ENDED, EndReason.OUT_OF_MEMORY),
        (["NODE_FAIL"], RunState.ENDED, EndReason.NODE_LOST),
        (["PREEMPTED"], RunState.ENDED, EndReason.PREEMPTED),
        (["completed"], RunState.ENDED, EndReason.COMPLETED),
        (["SOMETHING_NEW"], RunState.UNKNOWN, None),
        (["RUNNING", "SOMETHING_NEW"], RunState.UNKNOWN, None),
        ([], RunState.UNKNOWN, None),
    ],
)
def test_states(words: list[str], state: RunState, reason: EndReason | None) -> None:
    found = states.meaning(tuple(words))
    assert (found.state, found.reason) == (state, reason)


def test_what_ended_has_a_reason_and_what_goes_on_has_none() -> None:
    for means in (*states.BASE.values(), *states.FLAGS.values()):
        assert (means.reason is not None) == (means.state is RunState.ENDED)
    assert not set(states.BASE) & set(states.FLAGS)


def test_why_a_job_waits_is_told() -> None:
    assert states.why_waiting("Resources") == "waits for room"
    assert states.why_waiting("(Priority)") == "waits behind jobs that matter more"
    assert states.why_waiting("SomeNewReason") == "waits (SomeNewReason)"
    assert states.why_waiting("None") == ""


# JSON


@pytest.mark.parametrize("version", [38, 39, 40, 42, 44])
def test_jobs_of_old_and_new_versions_read_the_same(version: int) -> None:
    failed, running, waiting = documents.jobs(document(f"rest-jobs-{version}.json"))
    assert (failed.id, failed.states[0], failed.exit_code, failed.signal) == (1, "FAILED", 3, None)
    assert failed.run_id == "abc.0"
    assert failed.ended_at == datetime.fromtimestamp(1794784320, UTC)
    assert (running.meaning.state, running.cpus, running.nodes) == (RunState.RUNNING, 4, "n[1-2]")
    assert waiting.meaning.state is RunState.QUEUED
    assert waiting.started_at is None
    assert waiting.reason == "Priority"


def test_exit_codes_in_both_forms() -> None:
    assert documents.exit_status(11) == (None, 11)
    assert documents.exit_status(42 << 8) == (42, None)
    new = {"status": ["SIGNALED"], "return_code": {"set": False}, "signal": {"id": {"set": True, "number": 9}}}
    assert documents.exit_status(new) == (None, 9)
    new = {"status": ["ERROR"], "return_code": {"set": True, "infinite": False, "number": 42}, "signal": {"id": {}}}
    assert documents.exit_status(new) == (42, None)


@pytest.mark.parametrize("version", [38, 42])
def test_books_of_old_and_new_versions_read_the_same(version: int) -> None:
    (row,) = documents.accounted(document(f"rest-books-{version}.json"))
    assert (row.id, row.user, row.work_dir, row.states) == (9, "ada", "/w", ("FAILED",))
    assert (row.exit_code, row.signal, row.derived_exit_code) == (3, None, 4)
    assert (row.cpu_seconds, row.peak_memory_bytes, row.energy_joules) == (61.25, 1 << 20, 180)
    assert (row.nodes, row.cpus, row.steps) == ("n1", 2, 1)
    assert row.ended_at == datetime.fromtimestamp(1794784320, UTC)


@pytest.mark.parametrize("version", [38, 40, 42, 44])
def test_nodes_and_partitions_of_old_and_new_versions_read_the_same(version: int) -> None:
    answer = document(f"rest-site-{version}.json")
    first, drained = documents.nodes(answer)
    assert (first.name, first.cpus, first.memory_bytes) == ("n1", 2, 1000 * 2**20)
    assert first.gres == (("board:akida", 1),)
    assert first.usable
    assert drained.states >= {"IDLE", "DRAIN"}
    assert not drained.usable
    (partition,) = documents.partitions(answer)
    assert (partition.name, partition.default, partition.state) == ("short", True, "UP")
    assert (partition.max_seconds, partition.max_nodes, partition.nodes) == (1800, None, 2)
    assert (partition.allow_accounts, partition.allow_groups, partition.allow_qos) == (None, None, None)
    assert (partition.deny_accounts, partition.min_nodes) == ((), 0)


def test_errors_are_read_whatever_the_status() -> None:
    old = {"errors": [{"error_number": 2017, "error": "Invalid job id specified"}]}
    new = {"errors": [{"description": "Nothing found", "error_number": 2017, "error": "Invalid job id specified"}]}
    assert documents.errors(old)[0][0] == documents.errors(new)[0][0] == documents.NO_SUCH_JOB


def test_the_newest_version_that_is_known_is_used() -> None:
    paths = {f"/slurm/v0.0.{n}/jobs": {} for n in (38, 39, 40, 99)} | {"/slurmdb/v0.0.39/jobs": {}}
    assert documents.versions({"paths": paths}) == [40, 39, 38]
    newest = {f"/slurm/v0.0.{n}/jobs/": {} for n in range(42, 46)}
    assert documents.versions({"paths": newest})[0] == 45, "Slurm 26.05"
    assert documents.versions({"paths": paths}, "slurmdb") == [39]
    assert documents.versions({}) == []


def test_an_empty_answer_does_not_mean_that_there_are_no_nodes() -> None:
    assert commands.ListNodes().read(commands.Done(1, "No nodes in the system\n")) == []
    assert calls.ListNodes().read(calls.Reply(200, {"nodes": []})) == []
    with pytest.raises(SiteUnavailable):
        commands.ListNodes().read(commands.Done(0, ""))
    with pytest.raises(SiteUnavailable):
        calls.ListNodes().read(calls.Reply(200, {}))
