"""Reading what Slurm writes: recorded of 22.05, 24.11 and 26.05, over every version of slurmrestd but one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import EndReason, RunState
from isthmus.engines.slurm import states
from isthmus.engines.slurm.accounting import hostlists
from isthmus.engines.slurm.batch.submissions import Submission
from isthmus.engines.slurm.cluster.inventories import node_state
from isthmus.engines.slurm.facts import Accounted, SlurmJob, SlurmNode, SlurmPartition
from isthmus.engines.slurm.transports import commands, parsing, rest_calls, rest_documents
from isthmus.errors import EngineRefused, SiteUnavailable

RECORDED = Path(__file__).parent / "recorded"
COMMANDS = ["22.05", "24.11", "26.05"]
REST = [38, 40, 41, 42, 43, 44, 45]
SENT = Submission("n", "c", "games", "#!/bin/sh\n", "/w", "/dev/null")
HEADING = "F|JOBID|STATE|REASON|USER|PARTITION|SUBMIT_TIME|START_TIME|END_TIME|NODELIST|CPUS|NODES|COMMENT\n"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(recorded(name))
    return found


def said(version: str, command: str) -> str:
    """What a command of a version wrote."""
    found: dict[str, str] = json.loads(recorded(f"commands-{version}.json"))
    return found[command]


def answer(version: int, question: str) -> rest_calls.Reply:
    """What slurmrestd of a version answered."""
    found: dict[str, dict[str, Any]] = json.loads(recorded(f"rest-{version}.json"))
    return rest_calls.Reply(found[question]["status"], found[question]["body"])


WAITING = {
    5: "as many of its array run as may",
    8: "requeued and held by Slurm",
    9: "held",
    10: "waits for another job",
    12: "a node it needs was not available when Slurm last looked",
}
ENDS = {
    1: EndReason.COMPLETED,
    2: EndReason.COMPLETED,
    3: EndReason.CANCELLED,
    4: EndReason.OUT_OF_MEMORY,
    6: EndReason.COMPLETED,
}


def check_jobs(jobs: Sequence[SlurmJob]) -> dict[int, SlurmJob]:
    """The jobs that recorded/record.py ran, whichever way they are told."""
    found = {job.id: job for job in jobs}
    assert {job.user for job in jobs} == {"games"}
    assert {n: found[n].meaning.reason for n in ENDS} == ENDS
    assert {n for n in range(1, 13) if found[n].meaning.state is RunState.RUNNING} == {7, 11}
    assert {n for n in range(1, 13) if found[n].meaning.state is RunState.QUEUED} == set(WAITING)
    assert found[1].run_id == "abcdefgh.0"
    assert found[2].run_id is None
    for n in ENDS:
        assert found[n].ended_at >= found[n].started_at >= found[n].submitted_at  # type: ignore[operator]
    assert (found[11].nodes, found[11].cpus, found[11].node_count) == ("n[1-2]", 2, 2)
    assert found[9].started_at is None
    return found


@pytest.mark.parametrize("version", COMMANDS)
def test_squeue(version: str) -> None:
    found = check_jobs(parsing.jobs(said(version, "squeue"), "F"))
    assert {n: states.why_waiting(found[n].reason) for n in WAITING} == WAITING


def test_an_answer_without_heading_is_no_answer() -> None:
    for text in ("", "\n", "slurm_load_jobs error: timed out\n"):
        with pytest.raises(ValueError, match="heading"):
            parsing.jobs(text, "F")
    assert parsing.jobs(HEADING, "F") == []


def test_a_comment_with_line_breaks_passes_for_nobody_elses_job() -> None:
    forged = "99|COMPLETED|None|root|all|N/A|N/A|N/A|n1|1|1|isthmus:victim.0"
    text = f"{HEADING}F|5|RUNNING|None|eve|all|N/A|N/A|N/A|n1|1|1|hello\n{forged}\nF2|{forged}\n"
    assert [job.id for job in parsing.jobs(text, "F")] == [5]


@pytest.mark.parametrize("version", COMMANDS)
def test_scontrol_show_job(version: str) -> None:
    job = parsing.job(said(version, "job"))
    assert job is not None
    assert (job.id, job.user, job.states, job.exit_code, job.signal) == (1, "games", ("FAILED",), 3, None)
    assert job.run_id == "abcdefgh.0"


def test_the_first_word_of_a_name_counts() -> None:
    found = dict(parsing.pairs("JobId=1 JobState=RUNNING Comment=x JobState=COMPLETED"))
    assert found["JobState"] == "RUNNING"


def check_site(nodes: Sequence[SlurmNode], partitions: Sequence[SlurmPartition], *, default: bool = True) -> None:
    """The cluster that recorded/record.py had."""
    first, drained = nodes
    assert (first.name, first.cpus, first.allocated_cpus, first.memory_bytes) == ("n1", 2, 2, 1000 * 2**20)
    assert first.gres == (("board:akida", 1),)
    assert first.features == ("board", "akida")
    assert first.partitions == ("all", "short", "boards")
    assert first.usable
    assert drained.states >= {"MIXED", "DRAIN"}
    assert not drained.usable
    by_name = {partition.name: partition for partition in partitions}
    assert list(by_name) == ["all", "short", "boards", "gpus"]
    assert [p.name for p in partitions if p.default] == (["all"] if default else [])
    assert (by_name["all"].max_seconds, by_name["short"].max_seconds) == (None, 1800)
    assert (by_name["all"].nodes, by_name["all"].cpus, by_name["gpus"].nodes) == (2, 4, 1)
    for partition in partitions:
        assert (partition.state, partition.max_nodes, partition.min_nodes) == ("UP", None, 0)
        assert (partition.allow_accounts, partition.allow_groups, partition.allow_qos) == (None, None, None)
        assert (partition.deny_accounts, partition.deny_qos) == ((), ())


@pytest.mark.parametrize("version", COMMANDS)
def test_nodes_and_partitions(version: str) -> None:
    check_site(parsing.nodes(said(version, "nodes")), parsing.partitions(said(version, "partitions")))


@pytest.mark.parametrize("version", COMMANDS)
def test_sacct(version: str) -> None:
    rows = {row.id: row for row in parsing.accounted(said(version, "sacct"), ";")}
    check_accounting(rows[1])
    assert (rows[1].exit_code, rows[1].derived_exit_code) == (3, 4)
    assert (rows[2].exit_code, rows[2].signal) == (None, 11)
    assert states.meaning(rows[3].states).reason is EndReason.CANCELLED
    assert states.meaning(rows[4].states).reason is EndReason.OUT_OF_MEMORY


def check_accounting(row: Accounted) -> None:
    """The first job in the accounting, whichever way it is read."""
    assert (row.id, row.work_dir, row.states) == (1, "/lab/shared/work", ("FAILED",))
    assert row.user in ("games", ""), "22.05 names nobody where there is no association"
    assert (row.nodes, row.cpus, row.steps) == ("n1", 1, 2)
    assert row.whole
    assert row.cpu_seconds == pytest.approx(0.02, abs=0.01)
    assert row.peak_memory_bytes
    assert 100 * 2**10 <= row.peak_memory_bytes <= 8 * 2**20
    assert row.ended_at > row.started_at >= row.submitted_at  # type: ignore[operator]


def test_sacct_sums_steps_up() -> None:
    text = (
        "1;FAILED;3:0;0:0;01:01.250;;;2026-11-15T23:11:54;2026-11-15T23:11:55;2026-11-15T23:12:55;1;n1;ada;/w\n"
        "1.batch;FAILED;3:0;;00:00.008;1024K;150;2026-11-15T23:11:54;2026-11-15T23:11:55;2026-11-15T23:12:55;1;n1;;\n"
        "1.0;COMPLETED;0:0;;01:01.000;167032K;180;2026-11-15T23:11:54;2026-11-15T23:11:55;2026-11-15T23:12:55;1;n1;;\n"
        "broken line\n"
    )
    (row,) = parsing.accounted(text, ";")
    assert (row.cpu_seconds, row.peak_memory_bytes, row.energy_joules, row.steps) == (61.25, 167032 * 1024, 180, 2)
    assert (row.derived_exit_code, row.whole) == (0, True)
    # A step that slurmctld heard of after the end of its job: the job's own derived code lacks it.
    late = "1.1;{};{};;00:00.000;;;2026-11-15T23:11:54;2026-11-15T23:11:55;{};1;n1;;\n"
    (row,) = parsing.accounted(text + late.format("RUNNING", "0:0", "Unknown"), ";")
    assert not row.whole
    (row,) = parsing.accounted(text + late.format("FAILED", "5:0", "2026-11-15T23:12:55"), ";")
    assert (row.derived_exit_code, row.whole) == (5, True)


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


@pytest.mark.parametrize(
    "text",
    ["n[1-999999999]", "n[1-9999]" * 50, "n[²-³]", "n[5-3]", "n[5-3]x[1-2]", "node001[", "]n[", "n[1-", "n[,]",
     "[" * 9999, "n[1-" + "9" * 9999 + "]", ",".join(["a"] * 200_000)],
)  # fmt: skip
def test_a_list_of_nodes_that_makes_no_sense_harms_nobody(text: str) -> None:
    assert len(hostlists.expand(text)) <= hostlists.MOST


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
    assert states.why_waiting("(Priority)") == "waits behind higher-priority jobs"
    assert states.why_waiting("SomeNewReason") == "waits (SomeNewReason)"
    assert states.why_waiting("None") == ""


# JSON


@pytest.mark.parametrize("version", REST)
def test_jobs_of_old_and_new_versions_read_the_same(version: int) -> None:
    found = check_jobs(rest_calls.ListJobs().read(answer(version, "jobs")))
    assert (found[1].exit_code, found[1].signal) == (3, None)
    assert (found[2].exit_code, found[2].signal) == (None, 11)
    assert found[12].reason == "Resources"
    one = rest_calls.ShowJob(1).read(answer(version, "job"))
    assert one == found[1]
    assert rest_calls.ShowJob(999_999).read(answer(version, "no job")) is None


def test_the_form_of_v39_which_no_release_at_hand_has() -> None:
    failed, running, waiting = rest_documents.jobs(document("rest-jobs-39.json"))
    assert (failed.id, failed.states[0], failed.exit_code, failed.signal) == (1, "FAILED", 3, None)
    assert failed.run_id == "abc.0"
    assert failed.ended_at == datetime.fromtimestamp(1794784320, UTC)
    assert (running.meaning.state, running.cpus, running.nodes) == (RunState.RUNNING, 4, "n[1-2]")
    assert (waiting.meaning.state, waiting.started_at, waiting.reason) == (RunState.QUEUED, None, "Priority")


@pytest.mark.parametrize("version", REST)
def test_what_is_sent_is_answered(version: int) -> None:
    assert rest_calls.SubmitJob(SENT).read(answer(version, "submit")) >= 13
    with pytest.raises(EngineRefused, match="Invalid partition name"):
        rest_calls.SubmitJob(SENT).read(answer(version, "submit refused"))
    for question in ("cancel ended", "cancel no job"):
        rest_calls.CancelJob(1).read(answer(version, question))
    for question in ("hold ended", "hold no job"):
        rest_calls.HoldJob(1, True).read(answer(version, question))


@pytest.mark.parametrize("version", REST)
def test_a_token_that_is_not_accepted_is_no_refusal_of_the_job(version: int) -> None:
    for call in (rest_calls.SubmitJob(SENT), rest_calls.ListJobs(), rest_calls.ReadAccounting(1)):
        question = {"SubmitJob": "submit", "ListJobs": "jobs", "ReadAccounting": "accounting"}[type(call).__name__]
        with pytest.raises(SiteUnavailable):
            call.read(answer(version, f"{question}, bad token"))
    if version > rest_documents.PLAIN_NUMBERS_UNTIL:
        with pytest.raises(SiteUnavailable, match="keyFile or tokenFile"):
            rest_calls.ListJobs().read(answer(version, "jobs, bad token"))


@pytest.mark.parametrize("version", REST)
def test_the_version_of_slurm(version: int) -> None:
    expected = "22.05" if version == 38 else "24.11" if version <= 42 else "26.05"
    assert rest_calls.Ping().read(answer(version, "ping")).startswith(f"{expected}.")


def test_exit_codes_in_both_forms() -> None:
    assert rest_documents.exit_status(11) == (None, 11)
    assert rest_documents.exit_status(42 << 8) == (42, None)
    new = {"status": ["SIGNALED"], "return_code": {"set": False}, "signal": {"id": {"set": True, "number": 9}}}
    assert rest_documents.exit_status(new) == (None, 9)
    new = {"status": ["ERROR"], "return_code": {"set": True, "infinite": False, "number": 42}, "signal": {"id": {}}}
    assert rest_documents.exit_status(new) == (42, None)


@pytest.mark.parametrize("version", REST)
def test_accounting_of_old_and_new_versions_read_the_same(version: int) -> None:
    (row,) = rest_calls.ReadAccounting(1).read(answer(version, "accounting"))
    check_accounting(row)
    # 22.05 says 0 of every exit code: then what slurmctld said counts.
    assert (row.exit_code, row.derived_exit_code) == ((None, 0) if version == 38 else (3, 4))
    assert row.energy_joules == 0
    assert rest_calls.ReadAccounting(999_999).read(answer(version, "no accounting")) == []
    assert rest_calls.SearchAccounting("games", datetime.now(UTC)).read(answer(version, "search"))
    if version > rest_documents.PLAIN_NUMBERS_UNTIL:  # the oldest gives everybody's jobs
        assert rest_calls.SearchAccounting("bin", datetime.now(UTC)).read(answer(version, "search nothing")) == []


def test_cpu_seconds_and_energy_in_the_accounting_are_those_of_the_steps() -> None:
    step = {"time": {"total": {"seconds": 30, "microseconds": 250_000}}, "statistics": {"energy": {"consumed": 180}}}
    nothing = {"total": {"seconds": 0, "microseconds": 0}}
    (row,) = rest_documents.accounted({"jobs": [{"job_id": 9, "time": nothing, "steps": [step, step]}]})
    assert (row.cpu_seconds, row.energy_joules, row.steps) == (60.5, 180, 2)
    (row,) = rest_documents.accounted({"jobs": [{"job_id": 9, "time": {"total": {"seconds": 61}}, "steps": []}]})
    assert row.cpu_seconds == 61


@pytest.mark.parametrize("version", REST)
def test_nodes_and_partitions_of_old_and_new_versions_read_the_same(version: int) -> None:
    nodes = rest_calls.ListNodes().read(answer(version, "nodes"))
    partitions = rest_calls.ListPartitions().read(answer(version, "partitions"))
    check_site(nodes, partitions, default=version in (38, 45))  # the versions between do not tell


def test_errors_are_read_whatever_the_status() -> None:
    old = {"errors": [{"error_number": 2017, "error": "Invalid job id specified"}]}
    new = {"errors": [{"description": "Nothing found", "error_number": 2017, "error": "Invalid job id specified"}]}
    assert rest_documents.errors(old)[0][0] == rest_documents.errors(new)[0][0] == rest_documents.NO_SUCH_JOB


def test_the_newest_version_that_is_known_is_used() -> None:
    paths = {f"/slurm/v0.0.{n}/jobs": {} for n in (38, 39, 40, 99)} | {"/slurmdb/v0.0.39/jobs": {}}
    assert rest_documents.versions({"paths": paths}) == [40, 39, 38]
    newest = {f"/slurm/v0.0.{n}/jobs/": {} for n in range(42, 46)}
    assert rest_documents.versions({"paths": newest})[0] == 45, "Slurm 26.05"
    assert rest_documents.versions({"paths": paths}, "slurmdb") == [39]
    assert rest_documents.versions({}) == []


def test_an_empty_answer_does_not_mean_that_there_are_no_nodes() -> None:
    assert commands.ScontrolShowNodes().read(commands.Done(1, "No nodes in the system\n")) == []
    assert rest_calls.ListNodes().read(rest_calls.Reply(200, {"nodes": []})) == []
    with pytest.raises(SiteUnavailable):
        commands.ScontrolShowNodes().read(commands.Done(0, ""))
    with pytest.raises(SiteUnavailable):
        rest_calls.ListNodes().read(rest_calls.Reply(200, {}))
