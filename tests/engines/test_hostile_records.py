"""What a job can write and the control plane reads: whatever it is, it is read without harm to anybody else."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus._kit.numbers import decimal, whole
from isthmus.engines.base import RunState
from isthmus.engines.kubernetes import parsing as pods
from isthmus.engines.slurm.facts import SlurmJob
from isthmus.engines.slurm.files import records
from isthmus.engines.slurm.observing import observations
from isthmus.engines.slurm.observing.observations import Evidence, read_word
from isthmus.engines.slurm.transports import parsing

WHOLE = {
    "job": "7",
    "code": "0",
    "start": "1763000000.5",
    "end": "1763000001.5",
    "peak": "100",
    "cache": "0",
    "seen": "100",
}
ODD = [
    "²",
    "٣",
    "",
    "-1",
    "+1",
    " 1",
    "1e9",
    "inf",
    "nan",
    "0x10",
    "1_0",
    "9" * 30,
    "9" * 5000,
    "1.2.3",
    "\x00",
    "\U0001d7d9",
]


def text_of(**changes: str) -> str:
    return "".join(f"{name}={value}\n" for name, value in {**WHOLE, **changes}.items())


@given(st.text(max_size=40))
def test_numbers_are_ascii_digits_or_nothing(text: str) -> None:
    found = whole(text)
    assert found is None or (text.isascii() and str(found) == (text.lstrip("0") or "0"))
    exact = decimal(text)
    assert exact is None or math.isfinite(exact)
    assert whole(text.encode()) == found


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("name", [*WHOLE, "usage", "times", "meter"])
def test_a_word_of_a_slurm_job_is_believed_only_where_it_can_be_true(name: str, value: str) -> None:
    """`"²".isdigit()` is true and `int("²")` fails: one job ended the watcher of its site with that."""
    word = read_word(text_of(**{name: value}) + f"{name}=cpu {value}\n{name}={value}m{value}s {value}|{value}\n")
    over = observations.over(Evidence(records.RunRecord("u.0", "ada", 0.0, 7), SlurmJob(7, ("COMPLETED",)), word=word))
    assert over.state is RunState.ENDED
    if name in ("job", "code", "start", "end"):
        assert word is None or value == "1.2.3"
    else:
        assert word is not None
        assert over.usage is not None
        assert over.usage.peak_memory_bytes in (None, 100)


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ({"peak": "900", "cache": "600", "seen": "200"}, 300),
        ({"peak": "900", "cache": "600", "seen": "500"}, 500),
        ({"peak": "900", "cache": "-600", "seen": ""}, 900),
        ({"peak": "", "cache": "0", "seen": "500"}, 500),
        ({"peak": "900", "cache": "1000", "seen": ""}, 0),
    ],
)
def test_files_that_the_kernel_keeps_are_not_a_jobs_memory(said: dict[str, str], held: int) -> None:
    word = read_word(text_of(**said))
    assert word is not None
    assert word.peak_memory_bytes == held


@pytest.mark.parametrize("change", [{"start": "0", "end": "253402300799"}, {"end": "99999999999999999"}])
def test_times_that_no_run_can_have_are_not_believed(change: dict[str, str]) -> None:
    assert read_word(text_of(**change)) is None


@given(st.text(max_size=300))
def test_whatever_else_is_written_there_is_read_without_harm(text: str) -> None:
    read_word(text)
    assert sum(len(units) for units in parsing.units(text).values()) <= parsing.MOST_UNITS
    parsing.amount(text)
    pods.report(text)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 65536,
        "board:akida:1(IDX:0-999999999)" * 1000,
        "b:1(IDX:,,-,1-)",
        "b:1(IDX:" + "9" * 4000 + ")",
        "x:" * 30000,
    ],
    ids=["a long word", "many units", "no numbers", "a long number", "many colons"],
)
def test_units_are_bounded_and_take_no_time(text: str) -> None:
    assert sum(len(units) for units in parsing.units(text).values()) <= parsing.MOST_UNITS


@pytest.mark.parametrize("value", ODD)
def test_a_report_of_a_pod_is_believed_only_where_it_can_be_true(value: str) -> None:
    names = ("start", "end", "peak", "cache", "shared", "nanoseconds", "microseconds", "oom", "missing")
    message = "code=0\n" + "".join(f"{name}={value}\n" for name in names if name != "missing")
    main = pods.Container(state="terminated", exit_code=0, message=message)
    seen = pods.Pod("u.0", "isthmus-u-0", "uid", containers={"main": main}, phase="Succeeded")
    end = pods.ended(seen, "n/p", cancelled=False)
    assert end.usage is not None
    for number in (end.usage.elapsed_seconds, end.usage.cpu_seconds, end.usage.peak_memory_bytes):
        assert number is None or (math.isfinite(number) and number >= 0)
