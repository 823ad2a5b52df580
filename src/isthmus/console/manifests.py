"""Manifests of jobs: made from the fields of the form, or copied from a job. Pure.

A field of the form is called like the path it fills (`spec.resources.cpus`), so that an error of the API about a path
is shown at the field that made it, by the longest name that fits.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from isthmus._kit.ids import suffix
from isthmus.errors import Cause, Invalid
from isthmus.resources.meta import API_VERSION

PLATFORM = "isthmus.dev/"
_INDEX = re.compile(r"\[\d+\]")
_ENDING = re.compile(r"-[a-z0-9]{5}$")
FIELDS = (
    "metadata.namespace",
    "metadata.name",
    "metadata.labels",
    "spec.command",
    "spec.script",
    "spec.image",
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
)
_TEXTS = (
    "spec.image",
    "spec.files.tree",
    "spec.resources.cpus",
    "spec.resources.memory",
    "spec.resources.timeLimit",
    "spec.array.indices",
    "spec.placement.expression",
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
    for path in ("spec.outputs", "spec.placement.sites"):
        if path in given:
            _put(manifest, path, given[path].split())
    if devices := _devices(given):
        _put(manifest, "spec.resources.devices", devices)
    return manifest


def _what_to_run(fields: Mapping[str, str], given: Mapping[str, str], spec: dict[str, Any]) -> None:
    if fields.get("what", "script") == "command":
        if "spec.command" in given:
            spec["command"] = _words(given["spec.command"])
    elif "spec.script" in given:
        # Browsers send line ends as CR LF, which no shell likes.
        spec["script"] = fields["spec.script"].replace("\r\n", "\n").rstrip() + "\n"


def copied(job: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """A job as a manifest that makes it once more."""
    old = job["metadata"]
    metadata: dict[str, Any] = {"name": name} if name else {"name": f"{_ENDING.sub('', old['name'])[:247]}-{suffix()}"}
    metadata["namespace"] = old["namespace"]
    labels = {key: value for key, value in (old.get("labels") or {}).items() if not key.startswith(PLATFORM)}
    if labels:
        metadata["labels"] = labels
    spec = {key: value for key, value in job["spec"].items() if key != "intent" and value not in ([], {}, None)}
    return {"apiVersion": API_VERSION, "kind": "Job", "metadata": metadata, "spec": spec}


def at_fields(causes: Iterable[Cause], names: Iterable[str] = FIELDS) -> tuple[dict[str, str], list[str]]:
    """What to show at which field, and what belongs to none."""
    known, found, rest = tuple(names), dict[str, str](), list[str]()
    for cause in causes:
        path = _INDEX.sub("", cause.field)
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


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise _wrong("spec.command", f"cannot be cut into words ({error}); close the quotation mark") from None


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
