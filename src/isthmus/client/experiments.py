"""Manifests of Experiments from what people say in Python and on the command line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from isthmus.errors import Invalid

from .jobs import JobOptions, job_manifest, refuse_unknown
from .requests import Object


class CompareOptions(TypedDict, total=False):
    """What may be said about a comparison beside the command and its files."""

    name: str | None
    devices: Sequence[str]
    """Classes of device; `cpu` is a plain processor."""
    sites: Sequence[str]
    images: Sequence[str]
    parameters: Mapping[str, Sequence[Any] | Mapping[str, Any]]
    """`{"lr": [0.1, 0.01]}`, or a range to search: `{"lr": {"min": 1e-4, "max": 1, "log": True}}`."""
    repetitions: int | None
    parallel: int | None
    method: str | None
    """Grid, Random or TPE."""
    trials: int | None
    seed: int | None
    prune: bool
    """With TPE: end trials early that fall behind."""
    minimize: str | None
    """The objective: a reported value, or runTime, energy, energyDelay, peakMemory, cost."""
    maximize: str | None
    target: float | None
    """Stop when the objective is this good."""
    max_failures: int | None
    max_duration: str | None
    reference: str | None
    """The device that others are checked against; the first if none is named."""
    check_files: Sequence[str]
    check_values: Mapping[str, float]
    """Names of reported values, and how far each may be off."""
    report_file: str | None
    """A JSON file among the outputs with further values."""
    args: Sequence[str]
    env: Mapping[str, str]
    outputs: Sequence[str]
    cpus: str | float | None
    memory: str | None
    time_limit: str | None
    retries: int | None
    priority: int | None
    where: str | None
    labels: Mapping[str, str]


_OF_JOBS = ("args", "env", "outputs", "cpus", "memory", "time_limit", "retries", "priority", "where")


def experiment_manifest(
    command: Sequence[str] | str | None,
    script: str | None,
    files: Mapping[str, Any] | None,
    options: CompareOptions,
) -> Object:
    """The Experiment that says all this."""
    refuse_unknown("compare", options, CompareOptions.__annotations__)
    given: Any = options
    said: Any = {name: given[name] for name in _OF_JOBS if name in given}
    wanted: JobOptions = said
    job = job_manifest(command, script, files, wanted)
    name, base = options.get("name"), job["metadata"].get("generateName", "experiment-")
    meta: Object = {"name": name} if name else {"generateName": base}
    spec: Object = {
        "template": job["spec"],
        "labels": dict(options.get("labels") or {}),
        "matrix": _set({word: list(given.get(word) or ()) for word in ("devices", "sites", "images")}),
        "parameters": [_parameter(*pair) for pair in (options.get("parameters") or {}).items()],
        "search": _search(options),
        "objective": _objective(options),
        "repetitions": options.get("repetitions"),
        "parallel": options.get("parallel"),
        "stop": _set(
            {
                "maxFailures": options.get("max_failures"),
                "maxDuration": options.get("max_duration"),
                "target": options.get("target"),
            }
        ),
        "check": _check(options),
        "report": {"file": options["report_file"]} if options.get("report_file") else None,
    }
    return {"apiVersion": "isthmus.dev/v1", "kind": "Experiment", "metadata": meta, "spec": _set(spec)}


def _parameter(name: str, values: Sequence[Any] | Mapping[str, Any]) -> Object:
    if isinstance(values, Mapping):
        return {"name": name, "range": dict(values)}
    if isinstance(values, str):
        raise Invalid(f"parameter {name} is a single text; give a list of values, such as [{values!r}]")
    return {"name": name, "values": list(values)}


def _search(options: CompareOptions) -> Object:
    pruning = {"method": "Median"} if options.get("prune") else None
    given = {"method": options.get("method"), "trials": options.get("trials"), "seed": options.get("seed")}
    found = _set(given)
    return {**found, "pruning": pruning} if pruning else found


def _objective(options: CompareOptions) -> Object | None:
    low, high = options.get("minimize"), options.get("maximize")
    if low and high:
        raise Invalid("minimize and maximize exclude each other; give one")
    if low:
        return {"value": low, "goal": "Minimize"}
    return {"value": high, "goal": "Maximize"} if high else None


def _check(options: CompareOptions) -> Object | None:
    files, values = list(options.get("check_files") or ()), options.get("check_values") or {}
    if not files and not values:
        if options.get("reference"):
            raise Invalid("a reference needs something to compare: name check_files or check_values")
        return None
    tolerances = [{"name": name, "tolerance": tolerance} for name, tolerance in values.items()]
    return _set({"device": options.get("reference"), "files": files, "values": tolerances})


def _set(values: Mapping[str, Any]) -> Object:
    return {key: value for key, value in values.items() if value not in (None, [], {}, "")}
