"""From what Slurm, its accounting and the job's own report say to an observation. Pure.

Why a run ended is Slurm's to say, as far as nothing else speaks against it (see `ends`); how its program ended is the
script's, which was there. Times are on slurmctld's
clock, which all nodes are compared with; how long it took is on the node's own.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from isthmus._kit.numbers import decimal, whole
from isthmus.engines.base import EndReason, Observation, RunState, RunUsage
from isthmus.engines.metering import Power, estimate, memory_in_use
from isthmus.engines.meters import WHOLE_NODE
from isthmus.engines.slurm.facts import Accounted, SlurmJob
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.states import meaning, why_waiting
from isthmus.engines.slurm.transports import parsing

from . import ends
from .ends import By, Own

Range = tuple[datetime, datetime]
_SOURCE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MOST_METERS = 64
_LONGEST_RUN, _LAST_SECOND = 1e9, 253402300800
_NOT_FOUND = "the program was not found on the cluster"
LATEST_PLAN = timedelta(days=30)
"""A later start is no estimate: a job without a time limit is ahead, or the partition is down."""


@dataclass(frozen=True, slots=True)
class Word:
    """What the batch script wrote at the end."""

    job: int
    code: int
    start: float
    end: float
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    energy_joules: float | None = None
    meters: tuple[tuple[str, float], ...] = ()
    """Sources, and the joules that each counted."""
    late: bool = False
    """It was ended by the script's own watch."""
    missing: bool = False
    """There was no such program."""


def read_word(text: str) -> Word | None:
    """The file `ended`; None if it is not whole. The job itself can write it: only what can be is believed."""
    values: dict[str, str] = {}
    times: list[str] = []
    counted: list[tuple[str, float]] = []
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if name == "times":
            times.append(value)
        elif name == "meter":
            source, _, micro = value.partition(" ")
            if (joules := whole(micro)) is not None and _SOURCE.fullmatch(source) and len(counted) < _MOST_METERS:
                counted.append((source, joules / 1e6))
        elif equals:
            values[name] = value
    job, code = whole(values.get("job", ""), 10), whole(values.get("code", ""), 3)
    start, end = _seconds(values.get("start", "")), _seconds(values.get("end", ""))
    if job is None or code is None or code > 255 or start is None or end is None or end - start > _LONGEST_RUN:
        return None
    peak, energy = _usage(values.get("usage", ""))
    if (reported := memory_in_use(*(whole(values.get(name, "")) for name in ("peak", "cache", "seen")))) is not None:
        peak = max(peak or 0, reported)
    return Word(
        job, code, start, end, peak, _cpu(times), energy, tuple(counted), late=values.get("late") == "1",
        missing=values.get("missing") == "1",
    )  # fmt: skip


def _seconds(text: str) -> float | None:
    """Seconds since 1970. A date that knows no nanoseconds leaves the letters."""
    found = decimal(text)
    if found is None:
        found = decimal(text.partition(".")[0])
    return found if found is not None and found < _LAST_SECOND else None


def _usage(text: str) -> tuple[int | None, float | None]:
    """Lines of sstat: peak memory and energy of each step."""
    peaks, energies = [0], [0.0]
    for line in text.split(";"):
        memory, _, energy = line.partition("|")
        peaks.append(parsing.amount(memory) or 0)
        energies.append(float(whole(energy.strip()) or 0))
    return max(peaks) or None, max(energies) or None


def _cpu(times: list[str]) -> float | None:
    """The second line of `times` is the children's: user and system, as 0m1.25s."""
    if len(times) < 2:
        return None
    total = 0.0
    for part in times[1].split()[:2]:
        minutes, _, seconds = part.rstrip("s").partition("m")
        whole_minutes, rest = whole(minutes, 9), decimal(seconds)
        if whole_minutes is None or rest is None:
            return None
        total += whole_minutes * 60 + rest
    return total


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is known of a run that is over."""

    record: RunRecord
    job: SlurmJob | None = None
    accounted: Accounted | None = None
    word: Word | None = None
    begun: bool = False
    tail: str = ""
    """The end of what Slurm itself wrote about the job."""
    units: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    energy_share: float = 1.0
    power: Mapping[str, Power] = field(default_factory=dict)
    services: frozenset[str] = frozenset({"0", "root"})
    """Accounts, by name and number, that may be Slurm itself."""


def going_on(
    record: RunRecord, job: SlurmJob, units: Mapping[str, tuple[str, ...]], start: Range | None
) -> Observation:
    """A run that waits or runs."""
    means = job.meaning
    engine_id = str(job.id)
    if means.state is RunState.QUEUED:
        held = record.held and "Held" in job.reason
        return Observation(
            means.state,
            engine_id,
            message=_waiting(job, means.reported),
            image=record.image,
            held=held,
            start_between=start,
        )
    devices = _devices(record, units)
    started = job.started_at if means.state is RunState.RUNNING else None
    return Observation(means.state, engine_id, started, message=means.reported, devices=devices, image=record.image)


def _waiting(job: SlurmJob, reported: str) -> str:
    return why_waiting(job.reason) or reported


def start_between(job: SlurmJob, now: datetime) -> Range | None:
    """An estimate of a waiting job's start, if Slurm has planned it.

    The plan assumes that every job ahead uses all of its time limit, and they seldom do: so it is the later end of the
    range, and the present is the earlier. In whole minutes, so that it is not news at every look.
    """
    planned = job.started_at
    if planned is None or planned > now + LATEST_PLAN:
        return None
    latest = (planned + timedelta(seconds=59)).replace(second=0, microsecond=0)
    return (min(now, latest).replace(second=0, microsecond=0), latest)


def over(evidence: Evidence) -> Observation:
    """A run that is over."""
    record, job, accounted, word = evidence.record, evidence.job, evidence.accounted, evidence.word
    source = job or accounted
    number = source.id if source else record.job or (word.job if word else None)
    reason, message = _reason(evidence)
    if reason is EndReason.COMPLETED and not message and accounted is not None:
        message = _derived(accounted)
    code, name = _status(evidence, reason)
    started, ended = _times(evidence)
    usage = _usage_of(evidence, started, ended) if started is not None else None
    return Observation(
        RunState.ENDED,
        "" if number is None else str(number),
        started,
        ended,
        reason,
        message,
        code,
        name,
        usage,
        _devices(record, evidence.units),
        record.image,
    )


def _derived(accounted: Accounted) -> str:
    """What the accounting says of the steps, where a script hid it: the highest exit code of any of them."""
    if not accounted.derived_exit_code or accounted.derived_exit_code == accounted.exit_code:
        return ""
    return f"one of its steps ended with exit code {accounted.derived_exit_code}"


def _reason(evidence: Evidence) -> tuple[EndReason, str]:
    source, word = evidence.job or evidence.accounted, evidence.word
    if source is None:
        if word is not None and word.missing:
            return EndReason.START_FAILED, _NOT_FOUND
        if word is not None and word.late:
            return EndReason.TIME_LIMIT, ""
        return ends.without_slurm(_own(evidence), asked=evidence.record.cancelled)
    means = meaning(source.states)
    reason = means.reason or EndReason.SUPERVISOR_LOST
    reported = means.reported
    if reason is EndReason.CANCELLED:
        reason, reported = ends.cancelled(_canceller(evidence), _own(evidence), _who(evidence))
    elif reason is EndReason.NODE_LOST:
        reason, reported = ends.node_lost(_own(evidence), reported)
    elif reason is EndReason.START_FAILED:
        reason, reported = ends.not_begun(_own(evidence), reported, asked=evidence.record.cancelled)
    if reason is not EndReason.COMPLETED:
        return reason, reported
    if word is not None and word.missing:
        return EndReason.START_FAILED, evidence.tail or _NOT_FOUND
    if word is not None and word.late:
        return EndReason.TIME_LIMIT, ""
    if word is None and not evidence.begun and "COMPLETED" not in source.states:
        return EndReason.START_FAILED, evidence.tail or "Slurm could not start it"
    return reason, reported


def _own(evidence: Evidence) -> Own:
    """How far it came by itself."""
    word = evidence.word
    if word is None:
        if evidence.begun:
            return Own.BEGUN
        placed = any(source is not None and source.nodes for source in (evidence.job, evidence.accounted))
        return Own.PLACED if placed else Own.WAITED
    if word.code == 0:
        return Own.SUCCEEDED
    return Own.SIGNALLED if word.code > 128 and _signal(word.code - 128) else Own.FAILED


def _canceller(evidence: Evidence) -> By:
    if evidence.record.cancelled:
        return By.US
    if _started_again(evidence):
        return By.NOBODY
    if evidence.accounted is None or meaning(evidence.accounted.states).reason is not EndReason.CANCELLED:
        return By.UNKNOWN
    if evidence.accounted.cancelled_by is None:
        return By.UNKNOWN
    if not evidence.accounted.cancelled_by:
        return By.NOBODY
    return By.SERVICE if evidence.accounted.cancelled_by in evidence.services else By.PERSON


def _started_again(evidence: Evidence) -> bool:
    """Whether Slurm, which had lost track of the job, tried to start it once more while it ran.

    Then it says that it began later than the job itself does; or the service, not a person, ended it as it began.
    """
    source, accounted = evidence.job or evidence.accounted, evidence.accounted
    if source is None or evidence.word is None or source.started_at is None:
        return False
    if source.started_at.timestamp() > evidence.word.start + 1:
        return True
    at_once = source.ended_at is not None and source.ended_at - source.started_at <= timedelta(seconds=1)
    return at_once and accounted is not None and accounted.cancelled_by in evidence.services


def _who(evidence: Evidence) -> str:
    who = (evidence.accounted.cancelled_by if evidence.accounted else "") or ""
    if who in ("0", "root"):
        return "root"
    return f"user {who}"


def _status(evidence: Evidence, reason: EndReason) -> tuple[int | None, str | None]:
    word = evidence.word
    if word is not None:
        # A shell reports signals by numbers above 128; a program that itself ends with such a number looks the same.
        if word.code > 128 and (name := _signal(word.code - 128)):
            return None, name
        return word.code, None
    if reason in (EndReason.NODE_LOST, EndReason.PREEMPTED, EndReason.SUPERVISOR_LOST):
        return None, None
    reported = (s for s in (evidence.accounted, evidence.job) if s is not None)
    source = next((s for s in reported if s.signal or s.exit_code is not None), None)
    if source is None or (reason is EndReason.CANCELLED and not evidence.begun):
        return None, None
    if source.signal:
        return None, _signal(source.signal)
    if source.exit_code == 0 and reason is not EndReason.COMPLETED:
        return None, None  # Slurm says 0 of what it ended itself
    return source.exit_code, None


def _signal(number: int) -> str | None:
    try:
        return signals.Signals(number).name
    except ValueError:
        return None


def _times(evidence: Evidence) -> tuple[datetime | None, datetime | None]:
    word, source = evidence.word, evidence.job or evidence.accounted
    if word is None:
        if source is None:
            return None, None
        # Of a job that was cancelled in the queue slurmctld gives its end as its start as well; the accounting does
        # not.
        begun = source if evidence.begun else evidence.accounted
        return begun.started_at if begun else None, source.ended_at
    start = source.started_at if source is not None else None
    if start is None:
        start = datetime.fromtimestamp(word.start, UTC)
    return start, start + timedelta(seconds=max(0.0, word.end - word.start))


def _usage_of(evidence: Evidence, started: datetime, ended: datetime | None) -> RunUsage:
    word, accounted = evidence.word, evidence.accounted
    elapsed = None
    if word is not None:
        elapsed = max(0.0, word.end - word.start)
    elif ended is not None:
        elapsed = max(0.0, (ended - started).total_seconds())
    cpu = accounted.cpu_seconds if accounted and accounted.cpu_seconds else word.cpu_seconds if word else None
    peaks = [
        p for p in (accounted.peak_memory_bytes if accounted else None, word.peak_memory_bytes if word else None) if p
    ]
    # Slurm's accounting counts what was resident; the script may have only what a cgroup counts, with caches.
    peak = peaks[0] if peaks else None
    joules = accounted.energy_joules if accounted and accounted.energy_joules else word.energy_joules if word else None
    if joules:
        return RunUsage(elapsed, cpu, peak, joules * evidence.energy_share, "engine")
    if word is not None and word.meters:
        joules = sum(j * (evidence.energy_share if s in WHOLE_NODE else 1.0) for s, j in word.meters)
        source = "+".join(sorted({source.lower() for source, _ in word.meters}))
        return RunUsage(elapsed, cpu, peak, joules, source)
    guessed = estimate(
        evidence.power,
        _devices(evidence.record, evidence.units, evidence.record.devices),
        evidence.record.milli_cpus / 1000,
        elapsed or 0.0,
        cpu or 0.0,
    )
    return RunUsage(elapsed, cpu, peak, guessed, None if guessed is None else "estimated")


def _devices(
    record: RunRecord, units: Mapping[str, tuple[str, ...]], all_of: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """The units by class; with `all_of` a class whose units are not known counts as one."""
    found = {name: units[gres] for name, gres in record.devices.items() if gres in units}
    for name in all_of or ():
        found.setdefault(name, ("?",))
    return found
