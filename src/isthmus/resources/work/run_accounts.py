"""What runs used, counted from jobs: one entry for each run, and sums of entries. Pure.

The status of a job says all that is needed of each of its runs, so an entry is there as soon as the end of a run is
written, changes when the engine's accounting corrects the status, and cannot be counted twice: a run is known by the
job's identity and the number of the attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from isthmus._kit.clock import parse_timestamp
from isthmus._kit.quantities import parse_cpus
from isthmus.resources.jobs import run_id_of

PROJECT_LABEL = "isthmus.dev/project"
NO_DEVICE = "cpu"
"""What runs without devices are listed under."""


@dataclass(slots=True)
class Amounts:
    """So much was used. Cpu and device seconds are of what was reserved; `used_cpu_seconds` were measured."""

    runs: int = 0
    going: int = 0
    """How many of the runs are not over."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    used_cpu_seconds: float = 0.0
    device_seconds: dict[str, float] = field(default_factory=dict)
    energy_joules: float = 0.0
    cost: float = 0.0

    def add(self, other: Amounts) -> None:
        """As much more."""
        self.runs += other.runs
        self.going += other.going
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.used_cpu_seconds += other.used_cpu_seconds
        self.energy_joules += other.energy_joules
        self.cost += other.cost
        for name, seconds in other.device_seconds.items():
            self.device_seconds[name] = self.device_seconds.get(name, 0.0) + seconds


class UsageAccount(NamedTuple):
    """Who used what for which, where and when: of one run, or the sum of several."""

    day: str
    """On which it ended, or today while it goes on: 2026-11-18."""
    person: str
    project: str
    site: str
    amounts: Amounts

    @property
    def device(self) -> str:
        """The classes of devices; one of several names them all."""
        return "+".join(sorted(self.amounts.device_seconds)) or NO_DEVICE

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """What sums are kept apart by."""
        return self.day, self.person, self.project, self.site, self.device


class RunAccount(NamedTuple):
    """The entry of one run."""

    run: str
    account: UsageAccount


def accounts_of(job: Mapping[str, Any], now: datetime) -> list[RunAccount]:
    """An entry for each run that a job had or has; none for one that never began."""
    spec, status, meta = job.get("spec") or {}, job.get("status") or {}, job["metadata"]
    if spec.get("array"):
        return []  # its elements are jobs of their own
    # Of a removed job whose end nobody saw, nothing is known after it was to go; of an old try, nothing at all.
    tries = [
        {**past, "finishedAt": past.get("finishedAt") or past.get("startedAt")} for past in status.get("tries") or ()
    ]
    last = {"attempt": 0, **status, "finishedAt": status.get("finishedAt") or meta.get("deletionTimestamp")}
    found = []
    for attempt in (*tries, last):
        if not attempt.get("site") or not (attempt.get("startedAt") or attempt.get("usage")):
            continue
        try:
            account = _account(meta, spec, status, attempt, now)
        except ValueError:  # somebody else wrote what we would have refused: it harms nobody's sums but its own
            continue
        found.append(RunAccount(run_id_of(job, attempt["attempt"]), account))
    return found


def _account(meta: Any, spec: Any, status: Any, attempt: Any, now: datetime) -> UsageAccount:
    ended = attempt.get("finishedAt")
    end = parse_timestamp(ended) if ended else now
    usage = attempt.get("usage") or {}
    seconds = usage.get("elapsedSeconds")
    if seconds is None:
        begun = attempt.get("startedAt")
        seconds = max(0.0, (end - parse_timestamp(begun)).total_seconds()) if begun else 0.0
    cpus, devices = _reserved(spec.get("resources") or {}, attempt.get("chosen"))
    amounts = Amounts(
        runs=1,
        going=0 if ended else 1,
        seconds=seconds,
        cpu_seconds=cpus * seconds,
        used_cpu_seconds=usage.get("cpuSeconds") or 0.0,
        device_seconds={name: count * seconds for name, count in devices.items()},
        energy_joules=usage.get("energyJoules") or 0.0,
        cost=(attempt.get("pricePerHour") or 0.0) * seconds / 3600,
    )
    person = status.get("member") or status.get("submittedBy") or ""
    project = (meta.get("labels") or {}).get(PROJECT_LABEL) or ""
    return UsageAccount(end.astimezone(UTC).strftime("%Y-%m-%d"), person, project, attempt["site"], amounts)


def _reserved(resources: Mapping[str, Any], chosen: Mapping[str, Any] | None) -> tuple[float, dict[str, int]]:
    """Cpus and units of each class over all tasks."""
    tasks, nodes = resources.get("tasks") or 1, resources.get("nodes") or 1
    devices: dict[str, int] = {}
    for device in resources.get("devices") or ():
        devices[device["class"]] = device.get("count", 1) * (nodes if device.get("perNode") else tasks)
    if chosen:
        devices[chosen["class"]] = devices.get(chosen["class"], 0) + chosen.get("count", 1) * tasks
    return parse_cpus(str(resources.get("cpus") or "1")) * tasks / 1000, devices


def summed(accounts: Iterable[UsageAccount]) -> Iterator[UsageAccount]:
    """One account for each day, person, project, site and set of devices."""
    found: dict[tuple[str, ...], UsageAccount] = {}
    for account in accounts:
        if (known := found.get(account.place)) is None:
            known = found[account.place] = account._replace(amounts=Amounts())
        known.amounts.add(account.amounts)
    yield from found.values()


def key_by(account: UsageAccount, by: str) -> str:
    """What an account is listed under: its person, project, site, device, month or day."""
    if by == "month":
        return account.day[:7]
    found: str = getattr(account, by)
    return found
