"""`python -m benchmarks.scheduling`, as people call it."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.scheduling.command import call
from benchmarks.scheduling.runs import COLUMNS
from benchmarks.scheduling.tables import read_prices, read_profiles, shipped
from isthmus.errors import Invalid, IsthmusError, NotFound

PRICES = "VMtype,GPUtype,nGPUs,cost\nA1,K,1,0.5\nA2,K,2,1.0\nIn-house server,Q,8,0.1\n"
PROFILES = "job,application,gpu_type,gpus,seconds\nx,net,K,1,9000\nx,net,K,2,6000\ny,net,K,1,20000\ny,net,Q,8,10\n"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_it_writes_what_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs.csv"
    words = ["--nodes", "2,3", "--scenarios", "low,mixed", "--instances", "2", "--seeds", "2"]
    words += ["--methods", "edf,path-relinking,isthmus", "--iterations", "3", "--csv", str(out)]
    assert call([*words, "--plots", str(tmp_path / "plots")]) == 0
    found = rows(out)
    assert tuple(found[0]) == COLUMNS
    assert len(found) == 2 * 2 * 2 * 3 * 2  # a method without chance has the same line for each seed
    assert {row["seed"] for row in found if row["method"] == "path-relinking"} == {"0", "1"}
    for row in found:
        assert float(row["cost"]) >= float(row["bound"]) * (1 - 1e-9)
        assert 0 <= float(row["lateness_cost"]) <= float(row["cost"])
        assert float(row["seconds"]) >= 0
    reported = capsys.readouterr().out
    assert "low, 2 machines, 21 jobs, mean of 2 instances" in reported
    assert "over bound" in reported
    for name in ("cost", "decisions", "gantt-edf", "gantt-path-relinking", "gantt-isthmus"):
        root = ET.parse(tmp_path / "plots" / f"{name}.svg").getroot()
        assert root.tag.endswith("svg")
        assert len(list(root.iter())) > 20


def test_the_same_words_give_the_same_costs(tmp_path: Path) -> None:
    answers = []
    for name in ("a.csv", "b.csv"):
        words = ["--nodes", "2", "--scenarios", "high", "--instances", "1", "--csv"]
        assert call([*words, str(tmp_path / name), "--iterations", "3"]) == 0
        answers.append([(row["method"], row["cost"]) for row in rows(tmp_path / name)])
    assert answers[0] == answers[1]
    assert len(answers[0]) == 10 * 2


def instance(folder: Path, **changed: str) -> Path:
    texts = {
        "jobs": "job,submission,deadline,weight\na,0,5000,0.01\nb,100,9000,0.005\n",
        "times": (
            "job,vm,gpu_type,gpus,vm_gpus,vm_price,seconds\n"
            "a,V1,K,1,1,0.5,4000\na,V2,K,1,2,1.0,4000\na,V2,K,2,2,1.0,2500\nb,V1,K,1,1,0.5,3000\nb,V2,K,1,2,1.0,3000\n"
        ),
        "nodes": "node\nn1\nn2\n",
    } | changed
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def test_it_replays_instances(tmp_path: Path) -> None:
    instance(tmp_path / "set" / "one")
    instance(tmp_path / "set" / "two", nodes="node\nn1\n")
    out = tmp_path / "runs.csv"
    words = [
        str(tmp_path / "set"),
        "--methods",
        "fifo,isthmus",
        "--seeds",
        "1",
        "--csv",
        str(out),
    ]
    assert call(words) == 0
    found = rows(out)
    assert [(r["nodes"], r["instance"], r["method"]) for r in found] == [
        ("2", "one", "fifo"),
        ("2", "one", "isthmus"),
        ("1", "two", "fifo"),
        ("1", "two", "isthmus"),
    ]
    assert float(found[1]["cost"]) == pytest.approx(7000 * 0.5 / 3600, rel=1e-5)
    assert float(found[1]["bound"]) == pytest.approx(7000 * 0.5 / 3600, rel=1e-5)
    other = tmp_path / "other.csv"
    words = ["--instances", str(tmp_path / "set" / "one"), "--methods", "isthmus", "--csv"]
    assert call([*words, str(other)]) == 0
    assert rows(other)[0]["cost"] == found[1]["cost"]


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("jobs", "job,submission,deadline,weight\na,0,soon,0.01\n", "line 2: deadline is 'soon'"),
        ("jobs", "job,submission,weight\na,0,0.01\n", "no value for deadline"),
        ("jobs", "job,submission,deadline,weight\n", "must each name something"),
        ("nodes", "node\nn1\nn1\n", "no node twice"),
        ("times", "job,vm,gpu_type,gpus,vm_gpus,vm_price,seconds\na,V,K,1,1,1,10\nb,V,K,1,1,2,9\n", "another price"),
        ("times", "job,vm,gpu_type,gpus,vm_gpus,vm_price,seconds\na,V,K,3,1,1,10\n", "3 devices on V, which has 1"),
        ("times", "job,vm,gpu_type,gpus,vm_gpus,vm_price,seconds\na,V,K,nan,1,1,10\n", "not a whole number"),
    ],
)
def test_bad_instances_are_refused_clearly(tmp_path: Path, file: str, text: str, says: str) -> None:
    folder = instance(tmp_path, **{file: text})
    with pytest.raises(Invalid, match=says):
        call([str(folder), "--methods", "fifo"])


def test_jobs_that_make_no_sense_are_left_out_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = "job,vm,gpu_type,gpus,vm_gpus,vm_price,seconds\na,V,K,1,1,1,3600\nodd,V,K,1,1,1,10\nodd,V,K,1,1,1,11\n"
    times += "instant,V,K,1,1,1,0\nfree,V,K,1,1,1,10\n"
    jobs = "job,submission,deadline,weight\na,0,9000,0.01\nodd,0,9000,0.01\nunknown,0,9000,0.01\n"
    jobs += "instant,0,9000,0.01\nfree,0,9000,-1\n"
    folder = instance(tmp_path / "x", times=times, jobs=jobs)
    out = tmp_path / "runs.csv"
    assert call([str(folder), "--methods", "isthmus", "--csv", str(out)]) == 0
    assert float(rows(out)[0]["cost"]) == pytest.approx(1.0)
    reported = capsys.readouterr().err
    assert "odd was left out: its run times contradict each other" in reported
    assert "unknown was left out: it has no run time" in reported
    assert "instant was left out: a profile says 0.0 s on 1 x K; both must be positive" in reported
    assert "free was left out: jobs[free].weight is -1.0, and must be a number of at least 0" in reported


def test_a_deadline_in_the_past_is_late_not_wrong(tmp_path: Path) -> None:
    folder = instance(tmp_path / "x", jobs="job,submission,deadline,weight\na,1000,0,0.01\n")
    out = tmp_path / "runs.csv"
    assert call([str(folder), "--methods", "edf,isthmus", "--csv", str(out)]) == 0
    for row in rows(out):
        assert float(row["lateness_cost"]) == pytest.approx(0.01 * (1000 + 2500))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--methods", "magic"], "no method magic; choose from fifo"),
        (["--scenarios", "calm"], "no scenario calm"),
        (["--nodes", "ten"], "whole numbers"),
        (["--nodes", "0"], "at least 1"),
        (["--instances", "0"], "nothing to run"),
        (["--overheads", "much"], "up to three numbers"),
        (["--prices", "prices.csv"], "both --profiles and --prices"),
        (["nowhere"], "no folder nowhere"),
    ],
)
def test_bad_words_are_refused_clearly(words: list[str], says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        call(["--iterations", "1", *words])


def test_tables_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text(PRICES)
    (tmp_path / "profiles.csv").write_text(PROFILES)
    azure = read_prices(tmp_path / "prices.csv")
    assert [kind.name for kind in azure] == ["A1", "A2"]
    assert [sorted(p.seconds) for p in read_profiles(tmp_path / "profiles.csv", azure)] == [
        [("K", 1), ("K", 2)],
        [("K", 1)],
    ]
    every = read_prices(tmp_path / "prices.csv", in_house=True)
    assert len(every) == 3
    words = ["--nodes", "2", "--scenarios", "low", "--instances", "1", "--methods", "isthmus"]
    words += ["--profiles", str(tmp_path / "profiles.csv"), "--prices", str(tmp_path / "prices.csv")]
    assert call(words) == 0
    with pytest.raises(Invalid, match="the power of A1 is not known"):
        call([*words, "--objective", "energy"])
    with pytest.raises(NotFound, match="no file"):
        read_prices(tmp_path / "none.csv")


def test_energy_and_overheads(tmp_path: Path) -> None:
    words = ["--nodes", "2", "--scenarios", "low", "--instances", "1", "--methods", "edf"]
    costs = {}
    for name, extra in {"cost": [], "energy": ["--objective", "energy"], "real": ["--overheads", "realistic"]}.items():
        assert call([*words, *extra, "--csv", str(tmp_path / name)]) == 0
        costs[name] = float(rows(tmp_path / name)[0]["cost"])
    assert costs["real"] > costs["cost"]
    assert costs["energy"] < costs["cost"] / 5  # a kilowatt hour is cheaper than the hour of a machine that draws it


def test_the_shipped_tables_are_sound() -> None:
    catalogue = read_prices(shipped("machines.csv"))
    profiles = read_profiles(shipped("profiles.csv"), catalogue)
    assert len(profiles) >= 8
    assert all(kind.power for kind in catalogue)
    for profile in profiles:
        for (device, count), seconds in profile.seconds.items():
            fewer = profile.seconds.get((device, count - 1))
            assert fewer is None or fewer > seconds > fewer * (count - 1) / count  # faster, less than linearly
