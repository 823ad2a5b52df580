"""Journals and reports: what lines say, also when they are damaged or hostile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.engines.sampling import Reading, line, pause
from isthmus.telemetry.exporting import Labelled, influx, prometheus
from isthmus.telemetry.journals import Point, Sample, first_of, parse, points
from isthmus.telemetry.reports import Reader, last_values, parse_line, steps_of


def test_a_line_is_read_as_it_was_written() -> None:
    seen = Reading(12.5, 1000, 310.25, True, 0.8, 4096)
    (sample,), used = parse(line(100.125, seen))
    assert sample == Sample(100.125, 12.5, 1000, 310.25, True, 0.8, 4096)
    assert used == len(line(100.125, seen))
    (nothing,), _ = parse(line(1.0, Reading()))
    assert nothing == Sample(1.0)


def test_an_unfinished_line_waits_and_a_damaged_one_is_passed_over() -> None:
    whole = line(1.0, Reading(1.0))
    data = b"garbage\n" + b"1 2 3\n" + b"nan 1 - - - -\n" + b"-1 1 - - - -\n" + whole + whole[:5]
    samples, used = parse(data)
    assert samples == [Sample(1.0, 1.0)]
    assert data[used:] == whole[:5]
    assert parse(b"x" * 1000) == ([], 1000), "a line without an end does not hold everything up"


@given(st.binary(max_size=300))
def test_whatever_a_job_writes_there_is_read_without_harm(data: bytes) -> None:
    samples, used = parse(data)
    assert 0 <= used <= len(data)
    points(samples, None)


def test_rates_are_between_samples_and_never_negative() -> None:
    samples = [Sample(11.0, 2.0, 50, 20.0), Sample(13.0, 1.0, 60, 40.0), Sample(13.0, 3.0)]
    found = points(samples, first_of(10.0))
    assert Point("cpu", 11.0, 2.0) in found
    assert Point("power", 13.0, 10.0) in found
    assert [p for p in found if p.name == "cpu" and p.at == 13.0] == [], "a counter that fell makes no point"


def test_the_pause_grows_with_the_age() -> None:
    assert (pause(0), pause(600), pause(1e6)) == (1.0, 2.0, 15.0)


def test_reports_are_found_in_pieces_and_the_last_counts() -> None:
    text = (
        b'noise\nisthmus: {"accuracy": 0.5, "step": 4}\n  isthmus: {"accuracy": 0.9, "ok": true}\nisthmus: {"loss": 1'
    )
    reader, found = Reader(), []
    for at in range(0, len(text), 7):
        found += reader.feed(text[at : at + 7])
    found += reader.finish()
    assert last_values(found) == {"accuracy": 0.9, "ok": 1.0}
    assert steps_of(found, "accuracy") == {4: 0.5, 1: 0.9}


def test_what_is_no_report_is_passed_over() -> None:
    long = b"isthmus:" + b" " * 20_000 + b'{"a": 1}'
    for text in (b"isthmus: nothing", b"isthmus: [1]", b'isthmus: {"a": "text"}', b'isthmus: {"a": NaN}',
                 b'isthmus: {"a": 1e999}', b'{"a": 1}', b'isthmus: {"\\u0000": 1}', long):  # fmt: skip
        assert parse_line(text) == {}
    assert parse_line(b'isthmus: {"a": 1e308, "b": -1e301, "c": 1e300}') == {"c": 1e300}
    assert parse_line(b'isthmus: {"a": 1, "b": "x", "c": null}') == {"a": 1.0}


def test_exports_escape_what_people_chose() -> None:
    labels = Labelled("t", 'j"\n', "s")
    text = prometheus([(labels, {"cpu": (1.0, 0.5), "reported.loss": (1.0, 2.0)})])
    assert 'isthmus_job_cpu_cores{namespace="t",job="j\\"\\n",site="s"} 0.5' in text
    assert 'isthmus_job_reported{namespace="t",job="j\\"\\n",site="s",name="loss"} 2.0' in text
    assert text.count("# TYPE") == 2
    assert prometheus([]) == ""
    lines = influx(Labelled("t", "a b", "s"), {"reported.loss": [(1.0, 2.0), (3.5, 4.0)]}, since=2)
    assert lines == "isthmus_job,namespace=t,job=a\\ b,site=s reported_loss=4.0 3500000000\n"
