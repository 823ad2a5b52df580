"""Reading and writing the JSON of slurmrestd, in all its forms. Pure, and tested on recorded answers.

Up to v0.0.38 (Slurm 22.05) a state is a word, a number is a number, an exit code is the raw status of wait(2), and the
environment of a submission is a dictionary. From v0.0.39 on a state is a list, numbers are
`{"set": …, "infinite": …, "number": …}`, and the environment is a list. From v0.0.41 on the script belongs to the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from isthmus._kit.numbers import whole
from isthmus.engines.slurm.batch.submissions import Submission, node_range
from isthmus.engines.slurm.facts import Accounted, SlurmJob, SlurmNode, SlurmPartition

from .parsing import gres, names, node_states

OLDEST, NEWEST = 36, 45
"""Versions v0.0.N that we know."""
PLAIN_NUMBERS_UNTIL = 38
SCRIPT_BESIDE_JOB_UNTIL = 40
EXCLUSIVE_UNTIL = 39
"""Later versions know another word for it; from v0.0.42 on they ignore this one."""
NO_SUCH_JOB = 2017
NOT_AUTHENTICATED = 1007
_VERSION = re.compile(r"/(slurm|slurmdb)/v0\.0\.(\d+)/")
_LAST_SECOND = 253402300800
_NOTHING = frozenset({0, 4294967294, 4294967295})


def versions(openapi: Mapping[str, Any], service: str = "slurm") -> list[int]:
    """Which versions of a service there are, newest first; of those that we know."""
    found = {int(m[2]) for path in openapi.get("paths") or () if (m := _VERSION.match(path)) and m[1] == service}
    return sorted((v for v in found if OLDEST <= v <= NEWEST), reverse=True)


def number(value: Any) -> int | float | None:
    """A number in either form; None if it is not set, or without end."""
    if type(value) is int:  # most are, and a snapshot of the jobs has thousands
        return value
    if isinstance(value, Mapping):
        if value.get("infinite") or not value.get("set"):
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return whole(value) if isinstance(value, str) else None
    return value


def moment(value: Any) -> datetime | None:
    """A time; 0 and Slurm's largest numbers stand for none."""
    seconds = number(value)
    if seconds is None or seconds in _NOTHING or not 0 < seconds < _LAST_SECOND:
        return None
    return datetime.fromtimestamp(seconds, UTC)


def words(value: Any) -> tuple[str, ...]:
    """A state in either form."""
    if isinstance(value, str):
        return (value,)
    return tuple(str(word) for word in value) if isinstance(value, list) else ()


def exit_status(value: Any) -> tuple[int | None, int | None]:
    """Exit code or signal, in either form."""
    if isinstance(value, Mapping) and "return_code" in value:
        signal = value.get("signal") or {}
        which = number(signal.get("id", signal.get("signal_id")))
        if which:
            return None, int(which)
        code = number(value.get("return_code"))
        return (None if code is None else int(code)), None
    raw = number(value)
    if raw is None:
        return None, None
    status = int(raw)
    return (None, status & 0x7F) if status & 0x7F else ((status >> 8) & 0xFF, None)


def jobs(answer: Mapping[str, Any]) -> list[SlurmJob]:
    """`GET /slurm/…/jobs`; raises ValueError if there is no list in it."""
    if not isinstance(answer.get("jobs"), list):
        raise ValueError("the answer has no list of jobs")
    return [job(item) for item in answer["jobs"]]


def job(item: Mapping[str, Any]) -> SlurmJob:
    """One job."""
    code, signal = exit_status(item.get("exit_code"))
    return SlurmJob(
        id=int(number(item.get("job_id")) or 0),
        states=words(item.get("job_state")),
        reason=str(item.get("state_reason") or ""),
        user=str(item.get("user_name") or ""),
        partition=str(item.get("partition") or ""),
        comment=str(item.get("comment") or ""),
        submitted_at=moment(item.get("submit_time")),
        started_at=moment(item.get("start_time")),
        ended_at=moment(item.get("end_time")),
        nodes=str(item.get("nodes") or ""),
        cpus=int(number(item.get("cpus")) or 0),
        node_count=int(number(item.get("node_count")) or 1),
        exit_code=code,
        signal=signal,
    )


def accounted(answer: Mapping[str, Any]) -> list[Accounted]:
    """`GET /slurmdb/…/jobs`."""
    return [_accounted(item) for item in answer.get("jobs") or ()]


def _accounted(item: Mapping[str, Any]) -> Accounted:
    time, state = item.get("time") or {}, item.get("state") or {}
    code, signal = _book_status(item.get("exit_code"))
    if code == 0 and "FAILED" in words(state.get("current")):
        code = None  # Slurm 22.05 says 0 of every job
    steps = item.get("steps") or ()
    peaks = [p for step in steps if (p := _peak(step)) is not None]
    energy = [e for step in steps if (e := _energy(step)) is not None]
    return Accounted(
        id=int(number(item.get("job_id")) or 0),
        states=words(state.get("current")),
        user=str(item.get("user") or ""),
        work_dir=str(item.get("working_directory") or ""),
        submitted_at=moment(time.get("submission")),
        started_at=moment(time.get("start")),
        ended_at=moment(time.get("end")),
        exit_code=code,
        signal=signal,
        derived_exit_code=_book_status(item.get("derived_exit_code"))[0],
        cpu_seconds=_cpu_seconds(time, steps),
        peak_memory_bytes=max(peaks, default=None),
        energy_joules=max(energy, default=None),
        nodes="" if (nodes := str(item.get("nodes") or "")) == "None assigned" else nodes,
        cpus=int(_tres(item, "cpu") or 0),
        steps=len(steps),
        cancelled_by=str(item.get("kill_request_user") or "") or None,  # empty where it could not be found out, too
    )


def _cpu_seconds(time: Mapping[str, Any], steps: Iterable[Mapping[str, Any]]) -> float | None:
    """What sacct calls TotalCPU. slurmrestd has it of the steps, and of the whole job seldom."""
    totals = [(one.get("total") or {}) for one in (time, *(step.get("time") or {} for step in steps))]
    whole, *parts = [
        None
        if (seconds := number(total.get("seconds"))) is None
        else seconds + (number(total.get("microseconds")) or 0) / 1e6
        for total in totals
    ]
    return whole or (sum(part for part in parts if part is not None) if parts else whole)


def _book_status(value: Any) -> tuple[int | None, int | None]:
    if isinstance(value, Mapping) and isinstance(value.get("return_code"), int):
        signal = (value.get("signal") or {}).get("signal_id")
        return (None, signal) if signal else (value["return_code"], None)
    return exit_status(value)


def _peak(step: Mapping[str, Any]) -> int | None:
    requested = ((step.get("tres") or {}).get("requested") or {}).get("max") or ()
    found = [int(t["count"]) for t in requested if t.get("type") == "mem" and number(t.get("count"))]
    return max(found, default=None)


def _energy(step: Mapping[str, Any]) -> float | None:
    value = number(((step.get("statistics") or {}).get("energy") or {}).get("consumed"))
    return None if value is None or value >= 2**62 else float(value)


def _tres(item: Mapping[str, Any], kind: str) -> int | None:
    allocated = (item.get("tres") or {}).get("allocated") or ()
    return next((int(number(t.get("count")) or 0) for t in allocated if t.get("type") == kind), None)


def nodes(answer: Mapping[str, Any]) -> list[SlurmNode]:
    """`GET /slurm/…/nodes`."""
    found = []
    for item in answer.get("nodes") or ():
        states = {part for word in words(item.get("state")) for part in node_states(word)}
        states |= {str(flag).upper() for flag in item.get("state_flags") or ()}
        found.append(
            SlurmNode(
                name=str(item.get("name") or item.get("hostname") or ""),
                states=frozenset(states),
                cpus=int(number(item.get("cpus")) or 0),
                memory_bytes=int(number(item.get("real_memory")) or 0) * 2**20,
                allocated_cpus=int(number(item.get("alloc_cpus")) or 0),
                gres=gres(str(item.get("gres") or "")),
                features=_list(item.get("features")),
                partitions=_list(item.get("partitions")),
            )
        )
    return found


def _list(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(item) for item in value)
    return names(str(value or "")) or ()


def partitions(answer: Mapping[str, Any]) -> list[SlurmPartition]:
    """`GET /slurm/…/partitions`."""
    return [_partition(item) for item in answer.get("partitions") or ()]


def _partition(item: Mapping[str, Any]) -> SlurmPartition:
    newer = isinstance(item.get("nodes"), Mapping)
    most = (item.get("maximums") or {}) if newer else {}
    minutes = number(most.get("time") if newer else item.get("max_time_limit"))
    max_nodes = number(most.get("nodes") if newer else item.get("maximum_nodes_per_job"))
    state = words((item.get("partition") or {}).get("state")) if newer else words(item.get("state"))
    flags = [str(flag).lower() for flag in item.get("flags") or ()]
    accounts = (item.get("accounts") or {}).get("allowed") if newer else item.get("allowed_accounts")
    groups = (item.get("groups") or {}).get("allowed") if newer else item.get("allowed_groups")
    qos = (item.get("qos") or {}).get("allowed") if newer else item.get("allowed_qos")
    not_accounts = (item.get("accounts") or {}).get("deny") if newer else item.get("denied_accounts")
    not_qos = (item.get("qos") or {}).get("deny") if newer else item.get("denied_qos")
    least = (item.get("minimums") or {}).get("nodes") if newer else item.get("min nodes per job")
    total = item["nodes"].get("total") if newer else item.get("total_nodes")
    cpus = (item.get("cpus") or {}).get("total") if newer else item.get("total_cpus")
    return SlurmPartition(
        name=str(item.get("name") or ""),
        state=state[0] if state else "UP",
        default="default" in flags,
        max_seconds=None if _unlimited(minutes) else (minutes or 0) * 60.0,
        max_nodes=None if _unlimited(max_nodes) else int(max_nodes or 0),
        allow_accounts=names(str(accounts or "ALL")),
        allow_groups=names(str(groups or "ALL")),
        allow_qos=names(str(qos or "ALL")),
        deny_accounts=names(str(not_accounts or "")) or (),
        deny_qos=names(str(not_qos or "")) or (),
        min_nodes=int(number(least) or 0),
        nodes=int(number(total) or 0),
        cpus=int(number(cpus) or 0),
    )


def _unlimited(value: float | None) -> bool:
    return value is None or value < 0 or value in _NOTHING


def errors(answer: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Numbers and texts of the errors in an answer: newer versions say them with status 200."""
    return [_error(item) for item in answer.get("errors") or ()]


def _error(item: Any) -> tuple[int, str]:
    if not isinstance(item, Mapping):
        return 0, str(item)
    code = number(item.get("error_number", item.get("errno"))) or 0
    parts = [item.get("description"), item.get("error")]
    return int(code), ": ".join(str(part) for part in dict.fromkeys(parts) if part)


def submission(wanted: Submission, version: int) -> dict[str, Any]:
    """`POST /slurm/…/job/submit`."""
    plain = version <= PLAIN_NUMBERS_UNTIL

    def count(value: int) -> Any:
        return value if plain else {"set": True, "infinite": False, "number": value}

    job: dict[str, Any] = {
        "name": wanted.name,
        "comment": wanted.comment,
        "current_working_directory": wanted.work_dir,
        "standard_input": "/dev/null",
        "standard_output": wanted.output,
        "environment": dict(wanted.environment) if plain else [f"{k}={v}" for k, v in wanted.environment.items()],
        "tasks": wanted.tasks,
        "cpus_per_task": wanted.cpus_per_task,
        "nodes": node_range(wanted) or None,  # a list of two numbers is taken by older versions, and not heeded
    }
    if plain and not wanted.requeue:
        job["no_requeue"] = True  # older versions take any value of the other for yes
    else:
        job["requeue"] = wanted.requeue
    if wanted.memory_mb:
        job["memory_per_cpu" if wanted.memory_by_cpu else "memory_per_node"] = count(wanted.memory_mb)
    if wanted.tasks_per_node:
        job["tasks_per_node"] = wanted.tasks_per_node
    if wanted.time_minutes:
        job["time_limit"] = count(wanted.time_minutes)
    if wanted.gres:
        job |= (
            {"gres": ",".join(wanted.gres)} if plain else {"tres_per_node": ",".join(f"gres/{g}" for g in wanted.gres)}
        )
    if wanted.nice:
        job["nice"] = str(wanted.nice) if plain else wanted.nice
    if wanted.exclusive:
        if version > EXCLUSIVE_UNTIL:
            job["shared"] = ["none"]
        else:
            job["exclusive"] = "exclusive" if plain else ["true"]
    job |= {name: value for name, value in _texts(wanted, plain) if value}
    job = {name: value for name, value in job.items() if value is not None}
    if version <= SCRIPT_BESIDE_JOB_UNTIL:
        return {"script": wanted.script, "job": job}
    return {"job": job | {"script": wanted.script}}


def _split(text: str) -> list[str]:
    return text.split(",") if text else []


def _texts(wanted: Submission, plain: bool) -> Iterable[tuple[str, Any]]:
    yield "partition", ",".join(wanted.partitions)
    yield "account", wanted.account
    yield "qos", wanted.qos
    yield "reservation", wanted.reservation
    yield "constraints", wanted.constraint
    yield "licenses", wanted.licenses
    yield "dependency", wanted.dependency
    # The older versions refuse the words that they use in answers.
    yield ("nodelist", wanted.nodelist) if plain else ("required_nodes", _split(wanted.nodelist))
    yield ("exclude_nodes", wanted.exclude) if plain else ("excluded_nodes", _split(wanted.exclude))
    if wanted.signal:
        flags, colon, rest = wanted.signal.rpartition(":")
        name, _, seconds = rest.partition("@")
        if plain:
            yield "signal", f"{flags}{colon}{name}@{seconds or 60}"
        else:
            yield "kill_warning_signal", name
            yield "kill_warning_delay", {"set": True, "infinite": False, "number": int(seconds or 60)}
            yield "kill_warning_flags", ["BATCH_JOB"] if "B" in flags else None
