"""`isthmus usage`, on a real server: what ran is counted, also after its job is deleted."""

from __future__ import annotations

import csv
import io
import json

from .conftest import Call


def test_what_ran_is_counted_before_and_after_its_job_goes(isthmus: Call) -> None:
    assert isthmus("tenants", "create", "counted").returncode == 0
    ran = isthmus("run", "-n", "counted", "-q", "--no-files", "--name", "used", "--", "sleep", "0.2")
    assert ran.returncode == 0, ran.stderr
    words = ("usage", "-n", "counted", "--by", "site")
    before = json.loads(isthmus(*words, "-o", "json").stdout)
    assert [(item["name"], item["runs"]) for item in before["items"]] == [("local", 1)]
    assert before["items"][0]["cpuHours"] > 0
    assert isthmus("delete", "job", "used", "-n", "counted").returncode == 0
    assert json.loads(isthmus(*words, "-o", "json").stdout) == before
    (row,) = csv.DictReader(io.StringIO(isthmus(*words, "--since", "1d", "-o", "csv").stdout))
    assert (row["site"], row["runs"]) == ("local", "1")
    shown = isthmus("usage", "-n", "counted", "--by", "person").stdout.splitlines()
    assert shown[0].split()[:3] == ["PERSON", "RUNS", "RUNNING"]
    assert shown[1].startswith("admin")
    assert "nothing was used" in isthmus("usage", "-n", "counted", "--until", "2020-02").stderr
    assert "neither a day" in isthmus("usage", "--since", "soon").stderr
    assert "there is no tenant" in isthmus("usage", "-n", "nowhere").stderr
