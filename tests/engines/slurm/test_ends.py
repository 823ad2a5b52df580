"""Why a run ended: every combination of what Slurm says, what the job itself recorded, and what we asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from isthmus.engines.base import EndReason
from isthmus.engines.slurm.facts import Accounted, SlurmJob
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.observing import ends, observations
from isthmus.engines.slurm.observing.ends import By, Own
from isthmus.engines.slurm.observing.observations import Evidence, Word
from isthmus.engines.slurm.states import BASE

C, L, D = EndReason.CANCELLED, EndReason.NODE_LOST, EndReason.COMPLETED
EXPECTED = {
    By.US: (C, C, C, C, C, C),
    By.PERSON: (C, C, C, D, C, C),
    By.SERVICE: (C, L, L, D, D, C),
    By.NOBODY: (L, L, L, D, D, L),
    By.UNKNOWN: (C, L, L, D, D, C),
}
CODES = {Own.SUCCEEDED: 0, Own.FAILED: 3, Own.SIGNALLED: 143}


def evidence(by: By, own: Own, said: str = "CANCELLED") -> Evidence:
    """What there is when a run came so far and was cancelled like that."""
    nodes = "" if own is Own.WAITED else "n1"
    word = Word(7, CODES[own], 100.0, 101.0) if own in CODES else None
    names = {By.PERSON: "1000", By.SERVICE: "64030", By.NOBODY: ""}
    row = None
    if by in names:
        row = Accounted(7, (said,), nodes=nodes, cancelled_by=names[by])
    return Evidence(
        RunRecord("u.0", "games", job=7, cancelled=by is By.US),
        SlurmJob(7, (said,), nodes=nodes),
        row,
        word,
        begun=own not in (Own.WAITED, Own.PLACED),
        services=frozenset({"0", "root", "slurm", "64030"}),
    )


@pytest.mark.parametrize(("by", "own"), list(product(By, Own)))
def test_of_what_slurm_calls_cancelled(by: By, own: Own) -> None:
    seen = observations.over(evidence(by, own))
    assert seen.reason is EXPECTED[by][list(Own).index(own)]
    if own in (Own.SUCCEEDED, Own.FAILED):
        assert (seen.exit_code, seen.signal) == (CODES[own], None)
    if own is Own.SIGNALLED:
        assert (seen.exit_code, seen.signal) == (None, "SIGTERM")
    claims = seen.reason is C and by is not By.US
    assert ("cancelled on the cluster" in seen.message) is claims


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (By.PERSON, "cancelled on the cluster by user 1000"),
        (By.SERVICE, "cancelled on the cluster by user 64030: by an administrator, or by Slurm itself"),
        (By.UNKNOWN, "cancelled on the cluster; Slurm does not say by whom"),
    ],
)
def test_who_cancelled_it_is_said(by: By, said: str) -> None:
    assert observations.over(evidence(by, Own.SIGNALLED)).message == said


@pytest.mark.parametrize("own", list(Own))
def test_of_what_slurm_calls_lost_with_its_node(own: Own) -> None:
    """One that had recorded its own end before was not lost."""
    seen = observations.over(evidence(By.UNKNOWN, own, "NODE_FAIL"))
    assert seen.reason is (D if own in (Own.SUCCEEDED, Own.FAILED) else L)


@pytest.mark.parametrize("by", [By.SERVICE, By.UNKNOWN])
def test_a_job_that_slurm_started_again_while_it_ran_was_cancelled_by_nobody(by: By) -> None:
    """Slurm says that it began after it had begun."""
    seen = evidence(by, Own.SIGNALLED)
    assert seen.job is not None
    later = datetime.fromtimestamp(103, UTC)
    seen = replace(seen, job=replace(seen.job, started_at=later, ended_at=later))
    assert observations.over(seen).reason is L


def test_what_the_service_ended_as_it_began_was_cancelled_by_nobody() -> None:
    seen = evidence(By.SERVICE, Own.SIGNALLED)
    assert seen.job is not None
    start = datetime.fromtimestamp(100, UTC)
    short = replace(seen, job=replace(seen.job, started_at=start, ended_at=start))
    assert observations.over(short).reason is L
    long = replace(seen, job=replace(seen.job, started_at=start, ended_at=start + timedelta(seconds=60)))
    assert observations.over(long).reason is C


T, M, P, S, G = (
    EndReason.TIME_LIMIT, EndReason.OUT_OF_MEMORY, EndReason.PREEMPTED, EndReason.START_FAILED,
    EndReason.SUPERVISOR_LOST,
)  # fmt: skip
# What Slurm says, and whether we asked for the end: how it ended, by what the run itself recorded, as in `Own`.
OTHERS = {
    ("COMPLETED", False): (D, D, D, D, D, D),
    ("COMPLETED", True): (D, D, D, D, D, D),
    ("FAILED", False): (S, S, D, D, D, D),
    ("FAILED", True): (S, S, D, D, D, D),
    ("TIMEOUT", False): (T, T, T, T, T, T),
    ("TIMEOUT", True): (T, T, T, T, T, T),
    ("DEADLINE", False): (T, T, T, T, T, T),
    ("DEADLINE", True): (T, T, T, T, T, T),
    ("OUT_OF_MEMORY", False): (M, M, M, M, M, M),
    ("OUT_OF_MEMORY", True): (M, M, M, M, M, M),
    ("NODE_FAIL", False): (L, L, L, D, D, L),
    ("NODE_FAIL", True): (L, L, L, D, D, L),
    ("BOOT_FAIL", False): (L, L, L, D, D, L),
    ("BOOT_FAIL", True): (L, L, L, D, D, L),
    ("PREEMPTED", False): (P, P, P, P, P, P),
    ("PREEMPTED", True): (P, P, P, P, P, P),
    ("REVOKED", False): (S, S, S, D, D, D),
    ("REVOKED", True): (C, C, C, D, D, D),
    ("", False): (G, G, G, D, D, D),
    ("", True): (C, C, C, D, D, C),
}
"""`""`: neither Slurm nor its accounting knows the job."""


@pytest.mark.parametrize(("said", "asked"), list(OTHERS))
@pytest.mark.parametrize("own", list(Own))
def test_of_everything_else_that_slurm_says(said: str, asked: bool, own: Own) -> None:
    known = evidence(By.US if asked else By.UNKNOWN, own, said or "CANCELLED")
    seen = observations.over(known if said else replace(known, job=None))
    assert seen.reason is OTHERS[said, asked][list(Own).index(own)]
    assert asked or "cancel" not in seen.message, "nobody asked for it"
    if said:  # the accounting alone says the same
        row = Accounted(7, (said,), nodes=known.job.nodes if known.job else "")
        assert observations.over(replace(known, job=None, accounted=row)).reason is seen.reason
    if own in CODES:
        assert (seen.exit_code, seen.signal) == ((None, "SIGTERM") if own is Own.SIGNALLED else (CODES[own], None))


@pytest.mark.parametrize(("word", "reason"), [({"missing": True}, S), ({"late": True}, T)])
def test_what_the_script_says_of_itself_counts_without_slurm_too(word: dict[str, bool], reason: EndReason) -> None:
    known = evidence(By.UNKNOWN, Own.FAILED, "FAILED")
    assert known.word is not None
    said = replace(known, word=replace(known.word, **word))
    assert observations.over(said).reason is observations.over(replace(said, job=None)).reason is reason


def test_every_end_that_slurm_knows_has_its_row() -> None:
    over = {state for state, means in BASE.items() if means.reason is not None}
    assert {said for said, _ in OTHERS} == over - {"CANCELLED"} | {""}


def test_the_table_is_whole() -> None:
    assert {by: set(row) for by, row in ends.CANCELLED.items()} == {by: set(Own) for by in By}
