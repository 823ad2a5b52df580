"""What is written, as people and programs read it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from isthmus.cli.columns import COLUMNS, columns_of, command, why
from isthmus.cli.failures import say_error
from isthmus.cli.jobs.job_pages import page
from isthmus.cli.options import Format
from isthmus.cli.tables import fitted, plain_table, relative, show, table, write, write_names
from isthmus.client.places import places

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB: dict[str, Any] = {
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "lab", "creationTimestamp": "2026-01-01T00:00:00Z", "uid": "u"},
    "spec": {"command": ["echo", "a b"], "resources": {"cpus": "2", "timeLimit": "1h"}},
    "status": {
        "phase": "Failed",
        "reason": "Signalled",
        "message": "ended by SIGKILL\nand \x1b[31mred",
        "signal": "SIGKILL",
        "startedAt": "2026-01-01T00:00:01Z",
        "finishedAt": "2026-01-01T00:01:31Z",
        "usage": {"cpuSeconds": 12.5, "peakMemoryBytes": 1048576, "energyJoules": 3.14159, "energySource": "estimated"},
        "outputs": {"count": 1, "bytes": 2048, "skipped": ["big.bin: too large"]},
    },
}


def test_a_job_that_waits_says_why_in_a_line_and_lists_the_sites_below() -> None:
    why = "no site can run this job: local has 2 CPUs, the job asks for 512"
    message = f"{why}. local: it has 2 CPUs, the job asks for 512; far: not among the sites asked for (local)"
    waiting = {**JOB, "status": {"phase": "Pending", "reason": "NoSiteFits", "message": message}}
    lines = page(waiting, [], []).splitlines()
    assert f"Why:        {why} (NoSiteFits)" in lines
    at = lines.index("Sites:")
    assert lines[at + 1 : at + 3] == [
        "  local  it has 2 CPUs, the job asks for 512",
        "  far    not among the sites asked for (local)",
    ]
    assert "Sites:" not in page(JOB, [], []), "what has ended is told of no sites"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d"), (9e6, "104d")],
)
def test_ages(seconds: float, text: str) -> None:
    assert relative(NOW - timedelta(seconds=seconds), NOW) == text


def test_plain_tables_are_aligned_and_have_no_empty_cells() -> None:
    lines = list(plain_table(["NAME", "X"], [["a", ""], ["longer", "1"], ["日本", "2"]]))
    assert lines == ["NAME    X", "a       -", "longer  1", "日本    2"]


def test_the_widest_columns_give_way() -> None:
    assert fitted([10, 50, 8], 68) == [10, 50, 8]
    assert fitted([10, 50, 8], 40) == [10, 22, 8]
    assert fitted([40, 40], 20) == [10, 10]
    assert fitted([9, 9], 2) == [6, 6]


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    show([JOB], columns_of("Job"), Format.JSON, single=True)
    assert json.loads(capsys.readouterr().out) == JOB
    show([JOB], columns_of("Job"), Format.YAML)
    assert yaml.safe_load(capsys.readouterr().out)["items"] == [JOB]
    show([JOB], columns_of("Job"), Format.NAME)
    assert capsys.readouterr().out == "job/train\n"
    show([JOB], columns_of("Job", everywhere=True), Format.WIDE)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["NAMESPACE", "NAME", "PHASE"]
    assert "lab" in row
    assert "echo 'a b'" in row
    assert "\x1b" not in row, "what a job says must not steer the terminal"


def test_every_kind_has_columns() -> None:
    kinds = {place.kind for place in places()}
    assert set(COLUMNS) <= kinds
    for kind in kinds:
        for column in columns_of(kind):
            assert column.value({"kind": kind, "metadata": {"name": "x"}}) in ("x", "")


def test_the_page_of_a_job() -> None:
    events = [{"lastTimestamp": "2026-01-01T00:00:00Z", "reason": "Placed", "message": "placed at local", "count": 3}]
    text = page(JOB, events, [{"path": "out/a", "size": 2048}, {"path": "l", "link": "out/a"}])
    for part in (
        "Phase:      Failed", "Exit:       SIGKILL", "2 CPUs, at most 1h", "Ran for:    1m30s", "12s of CPU time",
        "3.14 J (estimated)", "1 file, 2KiB; not kept: big.bin: too large", "2KiB  out/a", "l -> out/a", "(x3)",
    ):  # fmt: skip
        assert part in text, part
    assert "\x1b" not in text


def test_what_a_job_runs_and_why() -> None:
    assert command({"spec": {"script": "#!/bin/sh\n# hi\n\nmake all\n"}}) == "make all"
    assert command({"spec": {"script": "#!/bin/sh"}}) == "#!/bin/sh"
    assert why({"status": {"array": {"succeeded": 2, "total": 4, "failed": 1}}}) == "2/4 succeeded, 1 failed"


HOSTILE = "a\x1b[2J\x9b31m\x07\u202eb"


def test_nothing_that_a_terminal_would_obey_reaches_it(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    say_error(f"{HOSTILE} was not kept")
    write_names([HOSTILE])
    write({"path": HOSTILE}, Format.JSON)
    write({"path": HOSTILE}, Format.YAML)
    table(["PATH"], [[HOSTILE]])
    reported = capsys.readouterr()
    for text in (reported.err, reported.out.replace("\x1b[1m", "").replace("\x1b[0m", "")):
        assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(text), text
    assert "\\x1b[2J" in reported.err


def test_programs_get_names_as_they_are_and_json_that_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    write_names([HOSTILE])
    assert capsys.readouterr().out == f"{HOSTILE}\n"
    write({"path": HOSTILE}, Format.JSON)
    assert json.loads(capsys.readouterr().out) == {"path": HOSTILE}
