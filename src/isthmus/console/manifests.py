"""Manifests of jobs and experiments: made from the fields of the form, or put back into fields.

A field of the form is called like the path it fills (`spec.resources.cpus`), so that an error of the API about a path
is shown at the field that made it, by the longest name that fits. An experiment is the form of a job (its template)
with a matrix and parameters. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from isthmus._kit.clock import timestamp
from isthmus.errors import Cause, Invalid
from isthmus.resources.frame.meta import API_VERSION
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB

_INDEX = re.compile(r"\[\d+\]")
FIELDS = (
    "metadata.namespace",
    "metadata.name",
    "metadata.labels",
    "spec.command",
    "spec.script",
    "spec.image",
    "spec.python.requirements",
    "spec.env",
    "spec.files",
    "spec.outputs",
    "spec.resources.cpus",
    "spec.resources.memory",
    "spec.resources.timeLimit",
    "spec.resources.devices",
    "spec.resources.nodes",
    "spec.resources.tasks",
    "spec.array.indices",
    "spec.array.limit",
    "spec.retries.limit",
    "spec.priority",
    "spec.placement.sites",
    "spec.placement.expression",
    "spec.streams",
    "spec.deadline",
    "spec.dependencies",
    "spec.matrix.devices",
    "spec.matrix.sites",
    "spec.parameters",
    "spec.repetitions",
    "spec.parallel",
    "spec.objective",
)
_TEXTS = (
    "spec.image",
    "spec.files.tree",
    "spec.resources.cpus",
    "spec.resources.memory",
    "spec.resources.timeLimit",
    "spec.array.indices",
    "spec.placement.expression",
    "spec.streams",
)
_NUMBERS = ("spec.resources.nodes", "spec.resources.tasks", "spec.array.limit", "spec.retries.limit", "spec.priority")


def from_form(fields: Mapping[str, str]) -> dict[str, Any]:
    """The manifest that the fields say; raises Invalid for what cannot be written as one."""
    given = {name: value.strip() for name, value in fields.items() if value.strip()}
    name = given.get("metadata.name")
    metadata: dict[str, Any] = {"name": name} if name else {"generateName": "job-"}
    if given.get("metadata.namespace"):
        metadata["namespace"] = given["metadata.namespace"]
    if labels := _pairs(given, "metadata.labels"):
        metadata["labels"] = labels
    if fields.get("kind") == "Experiment" and not name:
        metadata["generateName"] = "experiment-"
    manifest: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "Job", "metadata": metadata, "spec": {}}
    _what_to_run(fields, given, manifest["spec"])
    for path in _TEXTS:
        if path in given:
            _put(manifest, path, given[path])
    for path in _NUMBERS:
        if path in given:
            _put(manifest, path, _number(path, given[path]))
    if env := _pairs(given, "spec.env"):
        _put(manifest, "spec.env", [{"name": key, "value": value} for key, value in env.items()])
    if lines := [line.strip() for line in given.get("spec.python.requirements", "").splitlines() if line.strip()]:
        _put(manifest, "spec.python.requirements", lines)
    for path in ("spec.outputs", "spec.placement.sites"):
        if path in given:
            _put(manifest, path, given[path].split())
    if devices := _devices(given):
        _put(manifest, "spec.resources.devices", devices)
    if "spec.deadline" in given:
        _put(manifest, "spec.deadline", _moment(given["spec.deadline"], given.get("zone", "0")))
    if others := re.split(r"[\s,]+", given.get("spec.dependencies", "")) if "spec.dependencies" in given else []:
        condition = given.get("dependency-condition", "Succeeded")
        more = {} if condition == "Succeeded" else {"condition": condition}
        _put(manifest, "spec.dependencies", [{"job": other, **more} for other in others if other])
    return _experiment(manifest, given) if fields.get("kind") == "Experiment" else manifest


def _experiment(job: dict[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The experiment whose runs are made from the job of the form."""
    spec: dict[str, Any] = {"template": job["spec"]}
    manifest = {**job, "kind": "Experiment", "spec": spec}
    for axis in ("devices", "sites"):
        if chosen := given.get(f"spec.matrix.{axis}", "").split():
            _put(manifest, f"spec.matrix.{axis}", chosen)
    if parameters := _pairs(given, "spec.parameters"):
        spec["parameters"] = [
            {"name": name, "values": [value.strip() for value in values.split(",") if value.strip()]}
            for name, values in parameters.items()
        ]
    for path in ("spec.repetitions", "spec.parallel"):
        if path in given:
            _put(manifest, path, _number(path, given[path]))
    if "spec.objective" in given:
        spec["objective"] = {"value": given["spec.objective"], "goal": given.get("objective-goal", "Minimize")}
    return manifest


def _what_to_run(fields: Mapping[str, str], given: Mapping[str, str], spec: dict[str, Any]) -> None:
    if fields.get("what", "script") == "command":
        if "spec.command" in given:
            spec["command"] = _words(given["spec.command"])
    elif "spec.script" in given:
        # Browsers send line ends as CR LF, which no shell likes.
        spec["script"] = fields["spec.script"].replace("\r\n", "\n").rstrip() + "\n"


def to_form(manifest: Mapping[str, Any]) -> dict[str, str] | None:
    """The fields that make this job; None if the form cannot say all of it."""
    spec, metadata = manifest["spec"], manifest["metadata"]
    given: dict[str, Any] = {
        "what": "script" if spec.get("script") is not None else "command",
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.labels": _lines(metadata.get("labels") or {}),
        "spec.script": spec.get("script"),
        "spec.command": shlex.join(spec.get("command") or ()),
        "spec.env": _lines({one["name"]: one.get("value", "") for one in spec.get("env") or ()}),
        "spec.outputs": "\n".join(spec.get("outputs") or ()),
        "spec.python.requirements": "\n".join((spec.get("python") or {}).get("requirements") or ()),
        "spec.placement.sites": " ".join((spec.get("placement") or {}).get("sites") or ()),
        "spec.dependencies": " ".join(one["job"] for one in spec.get("dependencies") or ()),
        "dependency-condition": next((one.get("condition") for one in spec.get("dependencies") or ()), None),
        "spec.deadline": (spec.get("deadline") or "")[:16],
    }
    given |= {path: _get(manifest, path) for path in (*_TEXTS, *_NUMBERS)}
    for device in ((spec.get("resources") or {}).get("devices") or ())[:1]:
        given |= {"spec.resources.devices": device["class"], "device-count": device.get("count", 1)}
    fields = {name: str(value) for name, value in given.items() if value not in (None, "")}
    try:
        return fields if _meant(from_form(fields)) == _meant(manifest) else None
    except Invalid:
        return None


def _meant(manifest: Mapping[str, Any]) -> Any:
    """A manifest with its defaults, to be compared; sums over files are the server's."""
    checked = validate(JOB, dict(manifest))
    spec = {**checked["spec"], "files": (checked["spec"].get("files") or {}).get("tree")}
    return spec, checked["metadata"].get("labels") or {}


def _lines(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in pairs.items())


def _get(manifest: Mapping[str, Any], path: str) -> Any:
    found: Any = manifest
    for part in path.split("."):
        found = (found or {}).get(part)
    return found


def lines_of(text: str, paths: Iterable[str]) -> list[int]:
    """The lines of a YAML text, counted from 1, at which paths such as `spec.env[0].name` are, or what is nearest."""
    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return [1 for _ in paths]
    return [_line(top, path) for path in paths]


def _line(node: Any, path: str) -> int:
    found = 1
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == part), None)
            if pair is None:
                break
            found, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and part.isdecimal() and int(part[:9]) < len(node.value):
            node = node.value[int(part)]
            found = node.start_mark.line + 1
        else:
            break
    return found


def at_fields(causes: Iterable[Cause], names: Iterable[str] = FIELDS) -> tuple[dict[str, str], list[str]]:
    """What to show at which field, and what belongs to none."""
    known, found, rest = tuple(names), dict[str, str](), list[str]()
    for cause in causes:
        path = _INDEX.sub("", cause.field).replace("spec.template.", "spec.", 1)
        fitting = [name for name in known if path == name or path.startswith(f"{name}.")]
        if fitting:
            best = max(fitting, key=len)
            found[best] = f"{found[best]}; {cause.message}" if best in found else cause.message
        else:
            rest.append(f"{cause.field}: {cause.message}" if cause.field else cause.message)
    return found, rest


def _devices(given: Mapping[str, str]) -> list[dict[str, Any]]:
    chosen = given.get("spec.resources.devices")
    if not chosen:
        return []
    count = _number("spec.resources.devices", given.get("device-count", "1"))
    return [{"class": chosen, "count": count}]


def _moment(text: str, zone: str) -> str:
    """A local time of the browser, whose clock is `zone` minutes behind UTC, as a time in UTC."""
    try:
        local = datetime.fromisoformat(text)
        if local.tzinfo is None:
            offset = int(zone) if re.fullmatch(r"-?\d{1,4}", zone) else 0
            local = local.replace(tzinfo=UTC) + timedelta(minutes=offset)
        return timestamp(local.astimezone(UTC))
    except (ValueError, OverflowError):
        raise _wrong("spec.deadline", f"{text[:40]!r} is not a time such as 2026-12-24T18:00") from None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise _wrong("spec.command", f"cannot be split into arguments ({error}); close the quotation mark") from None


def _pairs(given: Mapping[str, str], path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in given.get(path, "").splitlines():
        if line.strip():
            key, equals, value = line.strip().partition("=")
            if not equals:
                raise _wrong(path, f"{line.strip()[:80]!r} is not of the form NAME=value")
            found[key.strip()] = value
    return found


def _number(path: str, text: str) -> int:
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise _wrong(path, f"{text[:40]!r} is not a whole number")
    return int(text)


def _put(manifest: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    place = manifest
    for part in parents:
        place = place.setdefault(part, {})
    place[last] = value


def _wrong(path: str, message: str) -> Invalid:
    return Invalid(f"{path}: {message}", causes=(Cause(path, message),))
