"""UsageRecord: what the runs of a tenant used whose jobs are gone, added up for a month. Kept by the platform.

The entry of a run is in its job for as long as there is one (`run_accounts.py`). When a job is removed, its runs are
added here first: each by itself in `settling`, for as long as its job may still be there, so that it is found again and
none is counted twice; then to the sums. A record that is full is followed by the next part of the same month.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from .frame.declarations import Kind, Reference
from .frame.meta import Model, Resource
from .tenants import SYSTEM_NAMESPACE
from .work.run_accounts import Amounts, RunAccount, UsageAccount, summed

TENANT_LABEL = "isthmus.dev/tenant"
MOST_BYTES = 240_000
"""Of a record: databases and clusters keep larger ones, but each addition writes all of it."""
_OF_A_RUN = 320
"""Bytes that the numbers and names of fields of one row have, at most."""


class UsageRow(Model):
    """What was used on one day by one person for one project at one site, on the same devices."""

    day: str
    person: str = ""
    project: str = ""
    site: str = ""
    runs: int = 0
    seconds: float = 0.0
    cpu_seconds: float = Field(default=0.0, description="of cpus that were reserved")
    used_cpu_seconds: float = Field(default=0.0, description="that were measured")
    device_seconds: dict[str, float] = Field(default_factory=dict)
    energy_joules: float = 0.0
    cost: float = 0.0


class SettlingRun(UsageRow):
    """What one run used whose job is about to go."""

    job: str


class UsageRecordSpec(Model):
    """What was used, and by whom."""

    tenant: str
    tenant_uid: str = ""
    month: str
    part: int = 0
    rows: list[UsageRow] = Field(default_factory=list)
    settling: dict[str, SettlingRun] = Field(
        default_factory=dict, description="runs by their ids, whose jobs may still be there"
    )


class UsageRecord(Resource):
    """What runs used whose jobs are gone."""

    kind: Literal["UsageRecord"] = "UsageRecord"
    spec: UsageRecordSpec


def accounts_in(spec: Mapping[str, Any], seen: Collection[str] = ()) -> Iterator[UsageAccount]:
    """What is counted in a record in its plain form, without the runs that were seen in their jobs."""
    yield from map(_account, spec.get("rows") or ())
    yield from (_account(row) for run, row in (spec.get("settling") or {}).items() if run not in seen)


def with_runs(
    spec: UsageRecordSpec, added: Mapping[str, tuple[str, UsageAccount]], gone: Collection[str] = ()
) -> UsageRecordSpec:
    """A record with more runs, each with the name of its job; those whose jobs are gone become part of the sums."""
    over = [_account(row.to_json()) for run, row in spec.settling.items() if run in gone]
    known = {run: row for run, row in spec.settling.items() if run not in gone}
    new = {run: SettlingRun(job=job, **_fields(account)) for run, (job, account) in added.items() if run not in known}
    sums = summed([*(_account(row.to_json()) for row in spec.rows), *over])
    rows = [UsageRow(**_fields(account)) for account in sums] if over else spec.rows
    return spec.model_copy(update={"rows": rows, "settling": {**known, **new}})


def _account(row: Mapping[str, Any]) -> UsageAccount:
    amounts = Amounts(
        runs=row.get("runs", 0),
        seconds=row.get("seconds", 0.0),
        cpu_seconds=row.get("cpuSeconds", 0.0),
        used_cpu_seconds=row.get("usedCpuSeconds", 0.0),
        device_seconds=dict(row.get("deviceSeconds") or {}),
        energy_joules=row.get("energyJoules", 0.0),
        cost=row.get("cost", 0.0),
    )
    return UsageAccount(row["day"], row.get("person", ""), row.get("project", ""), row.get("site", ""), amounts)


def _fields(account: UsageAccount) -> dict[str, Any]:
    amounts = account.amounts
    return {
        "day": account.day,
        "person": account.person,
        "project": account.project,
        "site": account.site,
        "runs": amounts.runs,
        "seconds": round(amounts.seconds, 6),
        "cpu_seconds": round(amounts.cpu_seconds, 6),
        "used_cpu_seconds": round(amounts.used_cpu_seconds, 6),
        "device_seconds": {name: round(seconds, 6) for name, seconds in amounts.device_seconds.items()},
        "energy_joules": round(amounts.energy_joules, 6),
        "cost": round(amounts.cost, 9),
    }


def size_of(entry: RunAccount, name: str) -> int:
    """Bytes that a run may add to a record, at most."""
    account = entry.account
    texts = (entry.run, name, account.person, account.project, account.site, *account.amounts.device_seconds)
    return _OF_A_RUN + sum(len(text.encode()) for text in texts) + 32 * len(account.amounts.device_seconds)


USAGE_RECORD = Kind(
    "UsageRecord",
    "usagerecords",
    UsageRecord,
    namespaced=True,
    has_status=False,
    categories=(),
    served=False,
    only_in=SYSTEM_NAMESPACE,
    refers=(Reference("spec.tenantUid", "Tenant", by_uid=True),),
    description="What runs used whose jobs are gone.",
)
