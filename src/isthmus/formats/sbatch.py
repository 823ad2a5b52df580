"""`#SBATCH` lines of a batch script, as sbatch reads them. Pure.

They stand between the first line and the first line that is neither blank nor a comment; later ones are not read, as
with sbatch. What can be honoured becomes part of the job; what can not is named, so that nobody believes in a limit
that is not held.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus._kit.durations import format_duration
from isthmus.errors import Invalid

from .sbatch_options import SHORT, full_name, takes_next_word

# Things that change nothing here.
_HARMLESS = frozenset({"verbose", "quiet", "parsable", "get-user-env", "ignore-pbs"})
_DEVICES = ("gres", "gpus-per-node", "gpus-per-task", "gpus")
_OUTPUT = ("output", "error", "open-mode")
_READ_TOGETHER = frozenset(
    {"mem", "mem-per-cpu", "ntasks", "nodes", "ntasks-per-node", "cpus-per-task", *_DEVICES, *_OUTPUT}
)
# Programs that speak to Slurm's daemons, where a command may begin.
_PROGRAMS = re.compile(
    r"(?:^|[;&|({`!]|\b(?:if|then|else|do|while|until|time|exec|eval|command)\s)\s*(?:\w+=\S*\s+)*"
    r"(srun|sbatch|salloc|sbcast|scancel|scontrol|squeue|sacct|sstat|sinfo)\s"
)
_ASKED = re.compile(r"\b(?:command\s+-v|which|type|hash)\s")
_UNLIMITED = ("0", "unlimited", "infinite")
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_GRES = re.compile(r"(?:gres[:/])?([\w.-]+(?::[A-Za-z_][\w.-]*)?)(?::(\d+))?")


@dataclass(slots=True)
class Batch:
    """What the lines say, in the words of a Job."""

    name: str | None = None
    resources: dict[str, Any] = field(default_factory=dict)
    slurm: dict[str, Any] = field(default_factory=dict)
    array: dict[str, Any] | None = None
    env: dict[str, str] = field(default_factory=dict)
    streams: str | None = None
    log_files: dict[str, Any] = field(default_factory=dict)
    stdin: str | None = None
    working_dir: str | None = None
    hold: bool = False
    program: str | None = None
    """A program of Slurm's that the script calls: it works at Slurm sites only."""
    unheeded: list[str] = field(default_factory=list)
    """A sentence for every line that is not honoured."""


def has_directives(script: str) -> bool:
    """Whether there is anything to read."""
    return any(True for _ in _lines(script))


def read_batch(script: str, devices: Mapping[str, str] | None = None, file: str = "") -> Batch:
    """What a script's #SBATCH lines say.

    `devices` maps a generic resource such as gpu:a100 to a DeviceClass; `file` is the script's name, which the job has
    in Slurm if it gives itself none.
    """
    refuse_dos_lines(script)
    found: dict[str, str] = {}
    for number, line in _lines(script):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise Invalid(f"line {number} of the script: {error}") from None
        found.update(_options(words, number))
    batch = Batch()
    for name, value in found.items():
        _apply(batch, name, value)
    if name := found.get("job-name") or file:
        batch.env.setdefault("SLURM_JOB_NAME", name)
    _log_files(batch, found)
    _memory(batch, found)
    _tasks(batch, found)
    _devices(batch, found, devices or {})
    batch.program = _program_of_slurm(script)
    return batch


def _lines(script: str) -> list[tuple[int, str]]:
    lines = []
    for number, line in enumerate(script.split("\n"), 1):
        if line.startswith("#SBATCH"):
            lines.append((number, line.removeprefix("#SBATCH").strip()))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return lines


def refuse_dos_lines(script: str) -> None:
    """Raise Invalid for line breaks that sbatch refuses too: the shell would take them for a part of each word."""
    if "\r\n" in script:
        raise Invalid(
            "the script has DOS line breaks (CR LF), which no shell understands; convert it with dos2unix, or with "
            "sed -i 's/\\r$//' FILE"
        )


def _options(words: list[str], number: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    rest, where = list(words), f"line {number} of the script"
    if words[:1] == ["hetjob"] or words[:1] == ["packjob"]:
        raise Invalid(
            f"{where}: heterogeneous jobs are not supported; submit each component as a job of its own and let them "
            "wait for each other with --after JOB:started"
        )
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            written, equals, value = word[2:].partition("=")
            name = full_name(written, where)
        elif word.startswith("-") and len(word) > 1 and word[1] in SHORT:
            name, value = SHORT[word[1]], word[2:].removeprefix("=")
            equals = value
        else:
            raise Invalid(f"{where}: {word!r} is not an option of sbatch")
        if not equals and takes_next_word(name):
            if not rest:
                raise Invalid(f"{where}: --{name} needs a value")
            value = rest.pop(0)
        found.append((name, value))
    return found


def _apply(batch: Batch, name: str, value: str) -> None:
    if name in _HARMLESS or name in _READ_TOGETHER:
        return
    if act := _ACTIONS.get(name):
        act(batch, value)
    else:
        shown = f"--{name}={value}" if value else f"--{name}"
        batch.unheeded.append(f"{shown} is not honoured{_REMEDIES.get(name, '')}")


def _log_files(batch: Batch, found: Mapping[str, str]) -> None:
    """Files in the job's folder, which come back with its outputs; `isthmus logs` shows the same.

    As with sbatch, both streams go into the file of --output, unless --error names another.
    """
    output, error = found.get("output"), found.get("error")
    if output or error:
        batch.streams = "Separate" if error and error != output else "Merged"
    for stream, name, value in (("stdout", "output", output), ("stderr", "error", error if error != output else None)):
        if not value or value == "/dev/null":
            continue
        if value.startswith("/") or ".." in value.split("/"):
            batch.unheeded.append(
                f"--{name}={value} is not honoured: only files below the job's folder are kept; use isthmus logs"
            )
        else:
            batch.log_files[stream] = value
    if batch.log_files and found.get("open-mode", "").startswith("a"):
        batch.log_files["append"] = True


def _chdir(batch: Batch, value: str) -> None:
    folder = posixpath.normpath(value)
    if folder.startswith(("/", "..")):
        batch.unheeded.append(
            f"--chdir={value} is not honoured: the job starts in the folder that is sent along, or in one below it; "
            "go to another with cd in the script"
        )
    elif folder != ".":
        batch.working_dir = folder


def _program_of_slurm(script: str) -> str | None:
    """The first program of Slurm's that the script calls without asking whether it is there."""
    lines = [line for line in script.split("\n") if not line.lstrip().startswith("#")]
    if any(_ASKED.search(line) for line in lines):
        return None
    return next((match[1] for line in lines if (match := _PROGRAMS.search(f"{line} "))), None)


def _time(batch: Batch, value: str) -> None:
    if value.lower() in _UNLIMITED:
        batch.unheeded.append(f"--time={value} is not honoured; without a limit that of the partition holds")
        return
    batch.resources["timeLimit"] = format_duration(seconds_of(value))


def seconds_of(text: str) -> float:
    """As Slurm reads a time limit: a bare number is minutes."""
    days, dash, clock = text.partition("-")
    parts = (clock if dash else text).split(":")
    if not all(part.isdigit() for part in ([days] if dash else []) + parts) or len(parts) > 3:
        raise Invalid(f"--time={text} is not a time; write minutes, 30:00, 1:30:00 or 2-12:00:00")
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return int(days) * 86400.0 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60.0
    if len(numbers) == 2:
        return numbers[0] * 60.0 + numbers[1]
    return numbers[0] * 3600.0 + numbers[1] * 60 + numbers[2]


def _array(batch: Batch, value: str) -> None:
    indices, percent, limit = value.partition("%")
    batch.array = {"indices": indices} | ({"limit": int(limit)} if percent and limit.isdigit() else {})


def _job_name(batch: Batch, value: str) -> None:
    batch.name = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:63] or None


def _set(field_name: str) -> Callable[[Batch, str], None]:
    def act(batch: Batch, value: str) -> None:
        batch.slurm[field_name] = value

    return act


def _switch(field_name: str, on: bool) -> Callable[[Batch, str], None]:
    def act(batch: Batch, value: str) -> None:
        batch.slurm[field_name] = on
        if value:
            batch.unheeded.append(f"--{field_name}={value} is taken as --{field_name}")

    return act


def _hold(batch: Batch, value: str) -> None:
    del value
    batch.hold = True


def _export(batch: Batch, value: str) -> None:
    """Variables with their values; those of the place where the script is sent from do not go along."""
    for part in value.split(","):
        name, equals, text = part.partition("=")
        if equals:
            batch.env[name] = text
        elif name == "ALL":
            batch.unheeded.append(
                "--export=ALL is not honoured: variables of this machine do not go along; name those that the script "
                "needs with isthmus run -e NAME"
            )
        elif name not in ("NONE", "NIL"):
            batch.unheeded.append(f"--export={name} is not honoured; use isthmus run -e {name}")


def _input(batch: Batch, value: str) -> None:
    """A file of the folder that is sent along; patterns such as %j are not for reading."""
    if value in ("none", "/dev/null"):
        return
    if value.startswith("/") or ".." in value.split("/") or "%" in value:
        batch.unheeded.append(f"--input={value} is not honoured; name a file of the folder that is sent along")
    else:
        batch.stdin = value.removeprefix("./")


def _dependency(batch: Batch, value: str) -> None:
    """Slurm's own words go to Slurm as they are: the numbers in them are Slurm's.

    `singleton` goes by user and name: so the name in Slurm's queue is the script's own, and not unique.
    """
    if "?" in value:
        batch.unheeded.append(f"--dependency={value} is not honoured: only all of several (,) and not one of them (?)")
    else:
        batch.slurm["dependency"] = value


_ACTIONS: Mapping[str, Callable[[Batch, str], None]] = {
    "time": _time,
    "array": _array,
    "job-name": _job_name,
    "partition": _set("partition"),
    "account": _set("account"),
    "qos": _set("qos"),
    "reservation": _set("reservation"),
    "constraint": _set("constraint"),
    "signal": _set("signal"),
    "licenses": _set("licenses"),
    "nodelist": _set("nodelist"),
    "exclude": _set("exclude"),
    "exclusive": _switch("exclusive", True),
    "requeue": _switch("requeue", True),
    "no-requeue": _switch("requeue", False),
    "hold": _hold,
    "dependency": _dependency,
    "export": _export,
    "input": _input,
    "chdir": _chdir,
}
_REMEDIES = {
    "begin": "; submit it when it shall begin",
    "mail-type": "; follow it with isthmus logs -f",
    "mail-user": "; follow it with isthmus logs -f",
    "mem-per-gpu": "; use --mem",
    "ntasks-per-core": "; use --cpus-per-task",
    "nice": "; use --priority",
    "wait": "; isthmus run waits, isthmus submit does not",
}


def _devices(batch: Batch, found: Mapping[str, str], devices: Mapping[str, str]) -> None:
    """The devices of a Job are per task or per node, as those of --gres and --gpus-per-node; --gpus is for all."""
    nodes, tasks = batch.resources.get("nodes", 1), batch.resources.get("tasks", 1)
    wanted: list[dict[str, Any]] = []
    for name in _DEVICES:
        for part in found[name].split(",") if name in found else ():
            match = _GRES.fullmatch(part if name == "gres" else f"gpu:{part}")
            if part == "none" or (match and match[2] and not int(match[2])):
                continue  # none is what a job has that asks for none
            kinds = _classes(match[1], devices) if match else []
            if match is None or len(kinds) != 1:
                why = f"several DeviceClasses have it ({', '.join(kinds)}): say which" if kinds else _unknown(devices)
                batch.unheeded.append(f"--{name}={part} is not honoured; {why}")
                continue
            count = int(match[2] or 1)
            total = {"gpus": count, "gpus-per-task": count * tasks}.get(name, count * nodes)
            if total % tasks == 0:
                wanted.append({"class": kinds[0], "count": total // tasks})
            elif total % nodes == 0:
                wanted.append({"class": kinds[0], "count": total // nodes, "perNode": True})
            else:
                batch.unheeded.append(f"--{name}={part} is not honoured; it is not the same for each of {nodes} nodes")
    if wanted:
        batch.resources["devices"] = wanted


def _classes(resource: str, devices: Mapping[str, str]) -> list[str]:
    """The DeviceClasses that a generic resource may be; without a type it may be any type."""
    if resource in devices:
        return [devices[resource]]
    return sorted({device for gres, device in devices.items() if gres.startswith(f"{resource}:")})


def _unknown(devices: Mapping[str, str]) -> str:
    return f"no DeviceClass has this slurm.gres (known: {', '.join(sorted(devices)) or 'none'})"


def _tasks(batch: Batch, found: Mapping[str, str]) -> None:
    nodes, most, tasks = _spread(found)
    if tasks > 1:
        batch.resources["tasks"] = tasks
    if nodes > 1:
        batch.resources["nodes"] = nodes
    if most > nodes:
        batch.slurm["nodes"] = f"{nodes}-{most}"
    per_node = _count(found, "ntasks-per-node")
    if per_node:
        batch.env["SLURM_NTASKS_PER_NODE"] = str(per_node)
    if per_node and most > 1:
        batch.slurm["tasksPerNode"] = per_node
        if most > nodes and "ntasks" not in found:
            batch.unheeded.append(f"--nodes={found['nodes']}: there are {tasks} tasks, as on the fewest nodes")
    if cpus := _count(found, "cpus-per-task"):
        batch.resources["cpus"] = str(cpus)


def _spread(found: Mapping[str, str]) -> tuple[int, int, int]:
    """The fewest and the most nodes, and the tasks; where only tasks are named, Slurm may spread them as it likes."""
    text, tasks, per_node = found.get("nodes", ""), _count(found, "ntasks"), _count(found, "ntasks-per-node")
    if not text and tasks:
        return (-(-tasks // per_node) if per_node else 1), tasks, tasks
    nodes = _count(found, "nodes") or 1
    last = text.partition("-")[2]
    return nodes, int(last) if last.isdigit() else nodes, tasks or nodes * (per_node or 1)


def _count(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name, "")
    first = text.split("-")[0]
    if text and not first.isdigit():
        raise Invalid(f"--{name}={text} is not a number")
    return int(first) if text else None


def _memory(batch: Batch, found: Mapping[str, str]) -> None:
    """Memory of a Job is per task; that of --mem per node, of --mem-per-cpu per cpu."""
    nodes, most, tasks = _spread(found)
    if text := found.get("mem"):
        each = -(-_mib(text, "mem") * nodes // tasks)
    elif text := found.get("mem-per-cpu"):
        each = _mib(text, "mem-per-cpu") * (_count(found, "cpus-per-task") or 1)
    else:
        return
    if each:
        batch.resources["memory"] = f"{each}Mi"
        if most > nodes and "mem" in found:
            batch.slurm["memoryPerNode"] = True
    else:
        batch.unheeded.append("--mem=0 (all memory of the node) is not honoured; say how much")


def _mib(text: str, name: str) -> int:
    match = _MEMORY.fullmatch(text)
    if not match:
        raise Invalid(f"--{name}={text} is not an amount of memory; write it like 4G or 512M")
    factor = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}[match[2].upper()]
    return int(-(-int(match[1]) * factor // 1))


def merged(job: dict[str, Any], batch: Batch) -> dict[str, Any]:
    """A Job with what the lines say; what the job itself says goes first, as words on sbatch's command line do."""
    spec = dict(job["spec"])
    spec["resources"] = {**batch.resources, **(spec.get("resources") or {})}
    slurm = {**batch.slurm, **(spec.pop("slurm", None) or {})}
    if batch.array and not spec.get("array"):
        spec["array"] = batch.array
    meta = dict(job.get("metadata") or {})
    env = batch.env | ({"SLURM_JOB_NAME": meta["name"]} if meta.get("name") else {})
    said = {variable["name"] for variable in spec.get("env") or ()}
    spec["env"] = [{"name": k, "value": v} for k, v in env.items() if k not in said] + list(spec.get("env") or ())
    if batch.streams:
        spec["streams"] = batch.streams
    if batch.working_dir:
        spec.setdefault("workingDir", batch.working_dir)
    if batch.log_files:
        spec.setdefault("logFiles", batch.log_files)
    if batch.stdin:
        spec.setdefault("stdin", posixpath.join(batch.working_dir or "", batch.stdin))
    if batch.hold:
        spec.setdefault("intent", "Hold")
    if batch.name and not meta.get("name"):
        meta["generateName"] = f"{batch.name}-"
    spec = {key: value for key, value in spec.items() if value not in ({}, [], None)}
    # An empty section is enough to keep a script that needs Slurm's programs from other sites.
    return {**job, "metadata": meta, "spec": spec | ({"slurm": slurm} if slurm or batch.program else {})}
