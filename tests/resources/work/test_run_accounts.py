"""What runs used is counted from jobs, once for each run, and added up in records that stay small."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from isthmus.resources.usage_records import UsageRecordSpec, accounts_in, with_runs
from isthmus.resources.work.run_accounts import Amounts, UsageAccount, accounts_of, key_by

NOW = datetime(2026, 3, 1, 1, tzinfo=UTC)


def job(status: dict[str, Any], **resources: Any) -> dict[str, Any]:
    meta = {"name": "j", "uid": "u", "labels": {"isthmus.dev/project": "mri"}}
    return {"metadata": meta, "spec": {"resources": resources}, "status": {"submittedBy": "ada", **status}}


def account(run: dict[str, Any], **resources: Any) -> UsageAccount:
    ((_, found),) = accounts_of(job(run, **resources), NOW)
    return found


def test_what_was_reserved_counts_for_as_long_as_it_ran() -> None:
    found = account(
        {
            "site": "a",
            "startedAt": "2026-02-28T22:00:00Z",
            "finishedAt": "2026-02-28T23:00:00Z",
            "pricePerHour": 2.5,
            "chosen": {"class": "gpu", "count": 1},
            "usage": {"elapsedSeconds": 1800.0, "cpuSeconds": 60.0, "energyJoules": 5.0},
        },
        cpus="500m",
        tasks=4,
        nodes=2,
        devices=[{"class": "akida", "count": 1, "perNode": True}],
    )
    assert (found.day, found.person, found.project, found.site) == ("2026-02-28", "ada", "mri", "a")
    assert [key_by(found, by) for by in ("month", "device", "project")] == ["2026-02", "akida+gpu", "mri"]
    amounts = found.amounts
    assert (amounts.runs, amounts.going, amounts.seconds, amounts.cpu_seconds) == (1, 0, 1800, 3600)
    assert amounts.device_seconds == {"akida": 3600, "gpu": 7200}
    assert (amounts.used_cpu_seconds, amounts.energy_joules, amounts.cost) == (60, 5, 1.25)


def test_a_run_that_goes_on_counts_until_now_and_what_never_began_not_at_all() -> None:
    found = account({"site": "a", "startedAt": "2026-03-01T00:30:00Z", "phase": "Running"})
    assert (found.day, found.amounts.going, found.amounts.seconds) == ("2026-03-01", 1, 1800)
    assert accounts_of(job({"site": "a", "phase": "Queued"}), NOW) == []
    array = job({"site": "a", "startedAt": "2026-03-01T00:30:00Z"})
    array["spec"]["array"] = {"indices": "0-9"}
    assert accounts_of(array, NOW) == []


def test_every_attempt_is_a_run_known_by_the_first_uid_of_its_job() -> None:
    past = {"attempt": 0, "site": "a", "startedAt": "2026-02-01T00:00:00Z", "usage": {"elapsedSeconds": 60.0}}
    status = {"identity": "first", "attempt": 1, "site": "b", "startedAt": "2026-03-01T00:00:00Z", "tries": [past]}
    found = accounts_of(job(status), NOW)
    assert [(entry.run, entry.account.day[:7], entry.account.amounts.going) for entry in found] == [
        ("first.0", "2026-02", 0),
        ("first.1", "2026-03", 1),
    ]


@pytest.mark.parametrize("bad", [{"startedAt": "soon"}, {"startedAt": "2026-03-01T00:00:00Z", "cpus": "many"}])
def test_what_cannot_be_read_is_left_out(bad: dict[str, Any]) -> None:
    assert accounts_of(job({"site": "a", **bad}, cpus=bad.get("cpus", "1")), NOW) == []


def test_a_record_takes_a_run_once_and_adds_up_what_is_alike() -> None:
    one = UsageAccount(
        "2026-03-01", "ada", "mri", "a", Amounts(runs=1, seconds=10.0, device_seconds={"gpu": 20.0}, cost=1)
    )
    other = one._replace(person="bob")
    spec = with_runs(UsageRecordSpec(tenant="t", month="2026-03"), {"x.0": ("x", one), "y.0": ("y", one)})
    spec = with_runs(spec, {"y.0": ("y", one), "z.0": ("z", other)}, gone=["x.0"])
    assert {run: row.job for run, row in spec.settling.items()} == {"y.0": "y", "z.0": "z"}
    assert [(row.person, row.runs, row.cost) for row in spec.rows] == [("ada", 1, 1)]
    assert sum(found.amounts.runs for found in accounts_in(spec.to_json())) == 3
    assert sum(found.amounts.runs for found in accounts_in(spec.to_json(), seen={"y.0"})) == 2
    spec = with_runs(spec, {}, gone=["y.0", "z.0"])
    assert spec.settling == {}
    found = {found.person: found.amounts for found in accounts_in(spec.to_json())}
    assert (found["ada"].runs, found["ada"].seconds, found["ada"].device_seconds, found["ada"].cost) == (
        2, 20, {"gpu": 40}, 2,
    )  # fmt: skip
    assert found["bob"].runs == 1
