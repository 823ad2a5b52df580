"""Reading what Slurm's commands write. Pure, and tested on recorded output.

Texts that people may choose (comments, names, folders) come last in a line or are fenced by a word that nobody could
know before the query was made: a comment with a line break in it can not pass for another job's line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from isthmus._kit.numbers import whole
from isthmus.engines.slurm.facts import Accounted, SiteFacts, SlurmJob, SlurmNode, SlurmPartition

JOB_FORMAT = "%A|%T|%r|%u|%P|%V|%S|%e|%N|%C|%D|%k"
ACCOUNT_FIELDS = (
    "JobIDRaw,State,ExitCode,DerivedExitCode,TotalCPU,MaxRSS,ConsumedEnergyRaw,Submit,Start,End,AllocCPUS,NodeList,"
    "User,WorkDir"
)
_NONE = frozenset({"", "N/A", "NONE", "None", "Unknown", "(null)", "n/a", "None assigned"})
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(\S*)")
_GRES = re.compile(r"([\w.-]+(?::[A-Za-z_][\w.-]*)?)(?::(\d+))?([KMGT])?(?:\([^)]*\))?")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)([KMGT]?)")
# It begins only where a word does: a long word would be tried from each of its letters.
_UNIT_INDEX = re.compile(r"(?<![\w.-])([\w.-]+(?::[A-Za-z_][\w.-]*)?):[0-9]{1,9}\(IDX:([0-9,-]{1,4096})\)", re.ASCII)
MOST_UNITS = 4096
"""Of all devices of one job together."""


def jobs(text: str, fence: str) -> list[SlurmJob]:
    """The lines of squeue; raises ValueError if the answer is not whole: its first line is the heading."""
    lines = text.split("\n")
    if not lines[0].startswith(f"{fence}|JOBID|"):
        raise ValueError("squeue did not even write its heading")
    return [job for line in lines[1:] if line.startswith(f"{fence}|") and (job := _job(line[len(fence) + 1 :]))]


def _job(line: str) -> SlurmJob | None:
    parts = line.split("|", 11)
    if len(parts) != 12 or whole(parts[0]) is None:
        return None
    id_, state, reason, user, partition, submit, start, end, nodes, cpus, count, comment = parts
    return SlurmJob(
        id=int(id_),
        states=(state,),
        reason=reason,
        user=user,
        partition=partition,
        comment="" if comment in _NONE else comment,
        submitted_at=moment(submit),
        started_at=moment(start),
        ended_at=moment(end),
        nodes=nodes,
        cpus=_int(cpus),
        node_count=_int(count.split("-")[0]),
    )


def job(text: str) -> SlurmJob | None:
    """One line of `scontrol -o show job`."""
    found = dict(pairs(text))
    if whole(found.get("JobId", "")) is None:
        return None
    code, signal = exit_status(found.get("ExitCode", ""))
    return SlurmJob(
        id=int(found["JobId"]),
        states=(found.get("JobState", ""),),
        reason=found.get("Reason", ""),
        user=found.get("UserId", "").partition("(")[0],
        partition=found.get("Partition", ""),
        comment="" if (comment := found.get("Comment", "")) in _NONE else comment,
        submitted_at=moment(found.get("SubmitTime", "")),
        started_at=moment(found.get("StartTime", "")),
        ended_at=moment(found.get("EndTime", "")),
        nodes="" if (nodes := found.get("NodeList", "")) in _NONE else nodes,
        cpus=_int(found.get("NumCPUs", "")),
        node_count=_int(found.get("NumNodes", "").split("-")[0]),
        exit_code=code,
        signal=signal,
    )


def accounted(text: str, fence: str) -> list[Accounted]:
    """The lines of sacct: each job with what its steps add."""
    found: dict[int, Accounted] = {}
    for line in text.split("\n"):
        parts = line.split(fence)
        if len(parts) != len(ACCOUNT_FIELDS.split(",")):
            continue
        number, dot, step = parts[0].partition(".")
        if whole(number) is None:
            continue
        row = _accounted(int(number), parts)
        if dot:
            # The job's own derived code lacks steps that ended in the same moment; of the script itself it has none.
            of_step = replace(row, derived_exit_code=row.exit_code if whole(step) is not None else None)
            found[row.id] = _with_step(found[row.id], of_step) if row.id in found else row
        else:
            found[row.id] = row
    return list(found.values())


def _accounted(number: int, parts: list[str]) -> Accounted:
    _, state, status, derived, cpu, memory, energy, submit, start, end, cpus, nodes, user, work = parts
    code, signal = exit_status(status)
    return Accounted(
        id=number,
        states=(state,),
        user=user,
        work_dir=work,
        submitted_at=moment(submit),
        started_at=moment(start),
        ended_at=moment(end),
        exit_code=code,
        signal=signal,
        derived_exit_code=exit_status(derived)[0],
        cpu_seconds=clock(cpu),
        peak_memory_bytes=amount(memory),
        energy_joules=_energy(energy),
        nodes="" if nodes in _NONE else nodes,
        cpus=_int(cpus),
        cancelled_by=state.partition(" by ")[2].strip(),
    )


def _with_step(job: Accounted, step: Accounted) -> Accounted:
    """Peaks over steps; of energy too, because every step counts that of whole nodes while it ran."""

    def most(one: float | None, other: float | None) -> float | None:
        return max((v for v in (one, other) if v is not None), default=None)

    peak = most(job.peak_memory_bytes, step.peak_memory_bytes)
    return replace(
        job,
        peak_memory_bytes=None if peak is None else int(peak),
        energy_joules=most(job.energy_joules, step.energy_joules),
        steps=job.steps + 1,
        steps_end=job.steps_end and step.ended_at is not None,
        derived_exit_code=max(job.derived_exit_code or 0, step.derived_exit_code or 0),
    )


def _energy(text: str) -> float | None:
    # Slurm's "not known" is the largest number it has.
    if not text or not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) >= 2**62:
        return None
    return float(text)


def nodes(text: str) -> list[SlurmNode]:
    """`scontrol -o show nodes`."""
    found = []
    for line in text.splitlines():
        values = dict(pairs(line))
        if name := values.get("NodeName"):
            found.append(
                SlurmNode(
                    name=name,
                    states=node_states(values.get("State", "")),
                    cpus=_int(values.get("CPUTot", "")),
                    allocated_cpus=_int(values.get("CPUAlloc", "")),
                    memory_bytes=_int(values.get("RealMemory", "")) * 2**20,
                    gres=gres(values.get("Gres", "")),
                    features=names(values.get("AvailableFeatures", "")) or (),
                    partitions=names(values.get("Partitions", "")) or (),
                )
            )
    return found


def node_states(text: str) -> frozenset[str]:
    """`IDLE*+DRAIN` is three words: the star says that the node does not answer."""
    words = {word.rstrip("*~#!%$@^-") for word in text.upper().split("+") if word}
    return frozenset(words | ({"NOT_RESPONDING"} if "*" in text else set()))


def partitions(text: str) -> list[SlurmPartition]:
    """`scontrol -o show partitions`."""
    found = []
    for line in text.splitlines():
        values = dict(pairs(line))
        if name := values.get("PartitionName"):
            found.append(
                SlurmPartition(
                    name=name,
                    state=values.get("State", "UP"),
                    default=values.get("Default") == "YES",
                    max_seconds=time_limit(values.get("MaxTime", "")),
                    max_nodes=_limit(values.get("MaxNodes", "")),
                    max_memory_per_node=None if (m := _limit(values.get("MaxMemPerNode", ""))) is None else m * 2**20,
                    allow_accounts=names(values.get("AllowAccounts", "ALL")),
                    allow_groups=names(values.get("AllowGroups", "ALL")),
                    allow_qos=names(values.get("AllowQos", "ALL")),
                    deny_accounts=names(values.get("DenyAccounts", "")) or (),
                    deny_qos=names(values.get("DenyQos", "")) or (),
                    min_nodes=_limit(values.get("MinNodes", "")) or 0,
                    nodes=_int(values.get("TotalNodes", "")),
                    cpus=_int(values.get("TotalCPUs", "")),
                )
            )
    return found


def config(text: str) -> SiteFacts:
    """`scontrol show config`."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            values[name.strip()] = value.strip()
    return facts(values)


def facts(values: Mapping[str, str]) -> SiteFacts:
    """What matters of the configuration."""
    wait = re.match(r"\d+", values.get("KillWait", "30"))
    return SiteFacts(
        version=values.get("SLURM_VERSION", ""),
        accounting="slurmdbd" in values.get("AccountingStorageType", ""),
        gathers_usage=values.get("JobAcctGatherType", "").removeprefix("jobacct_gather/") not in ("", "none", "(null)"),
        measures_energy=values.get("AcctGatherEnergyType", "").removeprefix("acct_gather_energy/")
        not in ("", "none", "(null)"),
        kill_wait=float(wait[0]) if wait else 30.0,
        services=frozenset({"0", "root", *re.findall(r"[^()\s]+", values.get("SlurmUser", "slurm"))}),
        extra={"cluster": values.get("ClusterName", "")},
    )


def pairs(line: str) -> Iterator[tuple[str, str]]:
    """`Name=value` words; the first of a name counts, because later ones may be part of somebody's text."""
    seen: set[str] = set()
    for match in _PAIR.finditer(line):
        if match[1] not in seen:
            seen.add(match[1])
            yield match[1], match[2]


def moment(text: str) -> datetime | None:
    """A time; the commands are asked to write them in UTC."""
    if len(text) != 19 or text[10] != "T":
        return None
    try:
        return datetime.fromisoformat(text).replace(
            tzinfo=UTC
        )  # a snapshot has thousands: strptime takes ten times as long
    except ValueError:
        return None


def exit_status(text: str) -> tuple[int | None, int | None]:
    """`42:0` is an exit code, `0:11` a signal."""
    code, _, signal = text.partition(":")
    if (ended := whole(code)) is None:
        return None, None
    number = whole(signal) or 0
    return (None, number) if number else (ended, None)


def clock(text: str) -> float | None:
    """Seconds of `1-02:03:04`, `02:03.456`; None for what is no time."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text)
    if not match:
        return None
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)


def time_limit(text: str) -> float | None:
    """Seconds of a limit; None is none."""
    if text in _NONE or text.upper() in ("UNLIMITED", "INFINITE"):
        return None
    if (found := clock(text)) is not None:
        return found
    day = re.fullmatch(r"(\d+)-(\d+)", text)
    return int(day[1]) * 86400.0 + int(day[2]) * 3600 if day else None


def amount(text: str) -> int | None:
    """Bytes of `167032K`."""
    match = _AMOUNT.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def gres(text: str) -> tuple[tuple[str, int], ...]:
    """`gpu:a100:2(S:0-1),board:akida:1` as names with counts."""
    if text in _NONE:
        return ()
    found: dict[str, int] = {}
    for part in re.split(r",(?![^(]*\))", text):
        if match := _GRES.fullmatch(part.strip()):
            count = int(match[2] or 1) * _UNITS[match[3] or ""]
            found[match[1]] = found.get(match[1], 0) + count
    return tuple(sorted(found.items()))


def units(text: str) -> dict[str, tuple[str, ...]]:
    """Which units of each generic resource a job was given: `board:akida:1(IDX:2)` in `scontrol show job -d`.

    The job itself can write there: what cannot be is passed over.
    """
    found: dict[str, list[str]] = {}
    left = MOST_UNITS
    for match in _UNIT_INDEX.finditer(text):
        for piece in match[2].split(","):
            first, dash, last = piece.partition("-")
            begin, end = whole(first, 9), whole(last if dash else first, 9)
            if begin is None or end is None:
                continue
            numbers = range(begin, min(end + 1, begin + left))
            left -= len(numbers)
            found.setdefault(match[1], []).extend(str(n) for n in numbers)
    return {name: tuple(indices) for name, indices in found.items()}


def names(text: str) -> tuple[str, ...] | None:
    """A list of names; None is all of them."""
    if text.upper() == "ALL":
        return None
    return () if text in _NONE else tuple(part for part in text.split(",") if part)


def _limit(text: str) -> int | None:
    return whole(text)


def _int(text: str) -> int:
    return whole(text) or 0
