"""From what a person says (`command`, `cpus`, `where`, …) to a Job. Pure; the server checks the values."""

from __future__ import annotations

import copy
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike
from typing import Any, TypedDict

from isthmus._kit.ids import suffix
from isthmus.errors import Invalid

from .flows import INDEX_LABEL
from .requests import Object

_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")
_INTERPRETER = re.compile(r"(ba|da|z|k)?sh|python[0-9.]*|perl|ruby|node|Rscript|julia|env")
_PLAIN = re.compile(r"[\w./+-]+")
_ENDING = re.compile(r"-[b-df-hj-np-tv-xz24-9]{5}$")  # as `_kit.ids.suffix` draws it, which makes no words
STDIN_PATH = ".isthmus-stdin"
"""Where in a job's folder the standard input lies that was sent along."""
_CONDITIONS = ("Succeeded", "Failed", "Finished", "Started")


class JobOptions(TypedDict, total=False):
    """What may be said about a job beside its command and its files."""

    name: str | None
    """Its name; none means one made of the command and a random ending."""
    args: Sequence[str]
    """Arguments of a script."""
    env: Mapping[str, str]
    image: str | None
    requirements: str | PathLike[str] | Sequence[str] | Mapping[str, Any] | None
    """Python packages that the site installs and keeps: a requirements.txt or pyproject.toml here, or its lines."""
    outputs: Sequence[str]
    """Patterns of files to keep, such as `out/*.csv`."""
    cpus: str | float | None
    memory: str | None
    devices: Mapping[str, int] | Sequence[str]
    """`{"akida": 2}` or `["akida:2"]`."""
    nodes: int | None
    tasks: int | None
    time_limit: str | None
    """Such as `30m`; the job is ended after this long."""
    array: str | None
    """`0-9`, or `0-9%3` for at most three at once."""
    after: Sequence[str]
    """Jobs to wait for: `train`, or `train:finished`."""
    outputs_of: Sequence[str]
    """Jobs to wait for, whose outputs are taken along: `train`, or `train:model` for a folder of their own."""
    retries: int | None
    priority: int | None
    deadline: str | None
    late_cost_per_hour: float | None
    """What an hour after the deadline costs."""
    any_devices: Sequence[str]
    """One of these, whichever serves the deadline best: `gpu:1,2,4`, `akida`."""
    expect: Sequence[str]
    """How long it takes: `1h`, or on certain devices `gpu:2=40m`."""
    restartable: bool
    """May be stopped for others and go on later."""
    checkpoint: Sequence[str]
    """Patterns of files that a restartable job finds again when it goes on, such as `state/*`."""
    sites: Sequence[str]
    where: str | None
    """Over the labels of sites: `location == IT and price < 2`."""
    labels: Mapping[str, str]
    """Labels of the job itself."""
    separate: bool
    """Keep standard error apart instead of in the order it was written."""
    ttl: str | None
    """Delete the job this long after its end."""


def refuse_unknown(call: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for an argument that does not exist, as Python does, with the one that was probably meant."""
    names = sorted(known)
    for name in options:
        if name not in names:
            near = get_close_matches(name, names, 1, 0.7)
            meant = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(names)}"
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}; {meant}")


def job_manifest(
    command: Sequence[str] | str | None, script: str | None, files: Mapping[str, Any] | None, options: JobOptions
) -> Object:
    """The Job that says all this."""
    refuse_unknown("run", options, JobOptions.__annotations__)
    if (command is None) == (script is None):
        raise Invalid("give either a command, such as ['python', 'train.py'], or a script, not both")
    words = shlex.split(command) if isinstance(command, str) else list(command or ())
    spec: Object = {"script": script, "args": _texts("args", options.get("args"))} if script else {"command": words}
    spec["files"] = _files(files)
    spec["outputs"] = _texts("outputs", options.get("outputs"))
    spec["env"] = [{"name": name, "value": value} for name, value in _pairs("env", options.get("env"))]
    spec["image"] = options.get("image")
    spec["python"] = _python(options.get("requirements"))
    spec["streams"] = "Separate" if options.get("separate") else None
    spec["resources"] = _resources(options)
    spec["array"] = _array(options.get("array"))
    spec["dependencies"] = _dependencies(*(_texts(key, options.get(key)) for key in ("after", "outputs_of")))
    spec["retries"] = {"limit": options["retries"]} if options.get("retries") else None
    spec["priority"] = options.get("priority")
    spec["deadline"] = options.get("deadline")
    spec["lateCostPerHour"] = options.get("late_cost_per_hour")
    spec["profile"] = [expectation(text) for text in _texts("expect", options.get("expect"))]
    spec["placement"] = _set({"sites": _texts("sites", options.get("sites")), "expression": options.get("where")})
    spec["ttlAfterFinished"] = options.get("ttl")
    spec = _set(spec)
    if options.get("restartable") or options.get("checkpoint"):
        spec["restartable"] = _set({"checkpoint": _texts("checkpoint", options.get("checkpoint"))})
    name = options.get("name")
    meta: Object = {"name": name} if name else {"generateName": f"{name_for(words, script)}-"}
    if labels := _pairs("labels", options.get("labels")):
        meta["labels"] = dict(labels)
    return {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": meta, "spec": spec}


def _python(given: object) -> Object | None:
    """The environment: as `client.requirements` read it from a file, or lines."""
    if isinstance(given, str | PathLike):
        raise Invalid("requirements: a file is read by run(); here give its lines as a list")
    return dict(given) if isinstance(given, Mapping) else _set({"requirements": _texts("requirements", given)}) or None


def with_stdin(job: Object, stdin: object | None) -> Object:
    """The job, reading what was sent along for its standard input, if anything was."""
    return job if stdin is None else {**job, "spec": {**job["spec"], "stdin": STDIN_PATH}}


def question(job: Mapping[str, Any] | str, deadline: str | None, late_cost_per_hour: float | None) -> Object:
    """What is asked about a job: one by its name, or one that is not there yet by its manifest."""
    what: Object = {"job": job} if isinstance(job, str) else {"template": job.get("spec") or {}}
    return (
        what
        | _set({"deadline": deadline})
        | ({} if late_cost_per_hour is None else {"lateCostPerHour": late_cost_per_hour})
    )


def name_for(words: Sequence[str], script: str | None = None) -> str:
    """What to call a job that nobody named: `python train.py` becomes `train`."""
    if script is not None:
        return "script"
    candidates = [word for word in words[:4] if not word.startswith("-") and _PLAIN.fullmatch(word)]
    for word in candidates:
        base = posixpath.basename(word.rstrip("/"))
        if not _INTERPRETER.fullmatch(base):
            stem = base.rsplit(".", 1)[0] or base
            if cleaned := _NOT_IN_NAME.sub("-", stem.lower()).strip("-")[:40].strip("-"):
                return cleaned
    return "job"


def _files(sent: Mapping[str, Any] | None) -> Object | None:
    if not sent or not sent.get("count"):
        return None
    return {"tree": sent["tree"], "bytes": sent.get("bytes", 0), "count": sent["count"]}


def _resources(options: JobOptions) -> Object:
    cpus = options.get("cpus")
    return _set(
        {
            "cpus": None if cpus is None else str(cpus),
            "memory": options.get("memory"),
            "devices": devices_of(options.get("devices") or ()),
            "anyOf": [any_device(text) for text in _texts("any_devices", options.get("any_devices"))],
            "nodes": options.get("nodes"),
            "tasks": options.get("tasks"),
            "timeLimit": options.get("time_limit"),
        }
    )


def devices_of(devices: Mapping[str, int] | Sequence[str]) -> list[Object]:
    """`akida:2` becomes a request for two units of class akida."""
    if isinstance(devices, Mapping):
        return [{"class": name, "count": count} for name, count in devices.items()]
    found = []
    for text in [devices] if isinstance(devices, str) else devices:
        name, colon, count = text.partition(":")
        if not name or (colon and not count.isdigit()):
            raise Invalid(f"device {text!r} cannot be read; write akida, or akida:2 for two of them")
        found.append({"class": name, "count": int(count or 1)})
    return found


def any_device(text: str) -> Object:
    """`gpu:1,2,4` becomes a choice of one, two or four units of class gpu."""
    name, colon, counts = text.partition(":")
    if not name or (colon and not all(part.isdigit() for part in counts.split(","))):
        raise Invalid(f"device {text!r} cannot be read; write gpu, or gpu:1,2,4 for the numbers it can use")
    return {"class": name, "counts": [int(part) for part in (counts or "1").split(",")]}


def expectation(text: str) -> Object:
    """`1h`, or `gpu:2=40m` for the run time on two units of class gpu."""
    where, equals, duration = text.rpartition("=")
    name, colon, count = where.partition(":")
    if (equals and not name) or (colon and not count.isdigit()) or not duration:
        raise Invalid(f"run time {text!r} cannot be read; write 1h, or gpu:2=40m for certain devices")
    return {"duration": duration} | ({"class": name, "count": int(count or 1)} if name else {})


def _array(text: str | None) -> Object | None:
    if not text:
        return None
    indices, percent, limit = text.partition("%")
    if percent and not limit.isdigit():
        raise Invalid(f"array {text!r} cannot be read; write 0-9, or 0-9%3 for at most three at once")
    return _set({"indices": indices, "limit": int(limit) if limit else None})


def _dependencies(after: Sequence[str], outputs_of: Sequence[str]) -> list[Object]:
    found = [_dependency(text) for text in after]
    for text in outputs_of:
        job, _, folder = text.partition(":")
        waits = next((dependency for dependency in found if dependency["job"] == job), None)
        if waits is None:
            found.append(waits := {"job": job, "condition": "Succeeded"})
        waits["outputsInto"] = folder or "."
    return found


def _dependency(text: str) -> Object:
    job, _, condition = text.partition(":")
    word = condition.capitalize() or "Succeeded"
    if word not in _CONDITIONS:
        known = ", ".join(c.lower() for c in _CONDITIONS)
        raise Invalid(f"{text!r}: {condition!r} is not a condition; the conditions are {known}")
    return {"job": job, "condition": word}


def _texts(option: str, given: object) -> list[str]:
    """What an option that takes several was given: a text alone is one of them, and not its letters."""
    if isinstance(given, str):
        return [given]
    if given is not None and (isinstance(given, bytes | Mapping) or not isinstance(given, Iterable)):
        raise TypeError(f"{option} must be a list of texts, not {given!r:.80}")
    return list(given or ())


def _pairs(option: str, given: object) -> list[tuple[str, str]]:
    """The names and values of an option that takes a map."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"{option} must be a map, such as {{'NAME': 'value'}}, not {given!r:.80}")
    return list((given or {}).items())


def _set(values: Mapping[str, Any]) -> Object:
    """Without what was not said: the server's defaults are better than a copy of them here."""
    return {key: value for key, value in values.items() if value not in (None, [], {}, "")}


def copied(obj: Mapping[str, Any], name: str = "") -> Object:
    """A job or an experiment as a manifest: under this name as it is, else as a new one, whose deadline is its own."""
    old = obj["metadata"]
    metadata: Object = {"name": name or f"{_ENDING.sub('', old['name'])[:247]}-{suffix()}"}
    if namespace := old.get("namespace"):
        metadata["namespace"] = namespace
    labels = {key: value for key, value in (old.get("labels") or {}).items() if not key.startswith("isthmus.dev/")}
    if labels:
        metadata["labels"] = labels
    left = {"intent"} if name else {"intent", "deadline"}
    spec = {key: value for key, value in obj["spec"].items() if key not in left and value not in ([], {}, None)}
    if not name and (index := (old.get("labels") or {}).get(INDEX_LABEL)) is not None:
        spec["array"] = {"indices": index}  # an element knows its index by the array that it is of
    kind = obj.get("kind") or "Job"
    return {"apiVersion": "isthmus.dev/v1", "kind": kind, "metadata": metadata, "spec": copy.deepcopy(spec)}
