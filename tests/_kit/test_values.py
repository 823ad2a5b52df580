from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus._kit.durations import format_duration, parse_duration
from isthmus._kit.ids import new_uid
from isthmus._kit.interpreters import is_optimised
from isthmus._kit.quantities import format_bytes, format_cpus, format_unequal_bytes, parse_bytes, parse_cpus


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("2d", 172800),
        ("250ms", 0.25),
        ("01:30:00", 5400),
        ("1-12:00:00", 129600),
        ("2-06:30", 196200),
        ("PT1H30M", 5400),
        ("P1DT1S", 86401),
        ("P2W", 1209600),
    ],
)
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "1.5", "h", "1h x", "12:30", "P", "PT", "-5s", "1:99:00", "5 minutes"])
def test_what_is_not_a_duration_is_told_with_the_remedy(text: str) -> None:
    with pytest.raises(ValueError, match="90s, 1h30m"):
        parse_duration(text)


@given(st.integers(1, 10**8))
def test_a_duration_survives_being_written_and_read(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(("text", "count"), [("512", 512), ("4Gi", 2**32), ("2G", 2 * 10**9), ("1.5Ki", 1536)])
def test_memory(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (15, "15"), (1000, "1000"), (1023, "1023"), (1536, "1.5Ki"), (1_298_137, "1.24Mi"), (2**30, "1Gi"),
     (1023 * 2**20, "0.999Gi"), (999.7 * 2**20, "0.976Gi"), (22_752_000_000, "21.2Gi"), (345.6 * 2**40, "346Ti")],
)  # fmt: skip
def test_people_read_three_digits_of_a_size(count: float, text: str) -> None:
    assert format_bytes(count) == text


def test_amounts_that_differ_are_written_differently() -> None:
    assert format_unequal_bytes(2**32, 2**33) == ("4Gi", "8Gi")
    assert format_unequal_bytes(2**32, 2**32 + 1) == ("4294967296B", "4294967297B")
    assert parse_bytes("4294967297B") == 2**32 + 1


@pytest.mark.parametrize(
    ("variables", "reported"),
    [
        ({"CONFIG_ARGS": "'--prefix=/home/a/.pyenv/versions/3.12.1' '--enable-shared'"}, False),
        ({"CONFIG_ARGS": "'--prefix=/home/a/.pyenv/versions/3.12.1' '--enable-optimizations' '--with-lto'"}, True),
        ({"CONFIG_ARGS": "'--enable-shared' '--prefix=/usr' '--with-dtrace'", "PGO_PROF_USE_FLAG": ""}, None),
        ({"CONFIG_ARGS": "'--prefix=/usr/local' '--enable-optimizations'", "Py_DEBUG": 1}, False),
        ({"CONFIG_ARGS": "'--prefix=/opt/versions/tools/python'"}, None),
        ({}, None),
    ],
)
def test_how_an_interpreter_was_built_is_told_only_where_it_is_known(
    variables: dict[str, object], reported: bool | None
) -> None:
    assert is_optimised(variables) is reported


@given(st.integers(1, 10**7))
def test_cpus_survive_being_written_and_read(milli: int) -> None:
    assert parse_cpus(format_cpus(milli)) == milli


@pytest.mark.parametrize("text", ["", "x", "4 Gib", "-1", "1e3", "0x10"])
def test_what_is_not_an_amount(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_bytes(text)
    with pytest.raises(ValueError, match="is not"):
        parse_cpus(text)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        parse_timestamp("2026-01-31T18:00:00")
    assert timestamp(parse_timestamp("2026-01-31T18:00:00+01:00")) == "2026-01-31T17:00:00.000Z"


def test_uids_sort_by_birth() -> None:
    made = [new_uid() for _ in range(5000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
