"""The cells of an experiment, and the job of each run. Pure: the same experiment always has the same runs.

Cells are numbered: every combination of the matrix in its order, and within it every point of the parameters. The
points of a Grid and of Random are known beforehand; those of TPE are chosen as results come in, and written down in
the first job of their cell before anything runs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from isthmus.resources.experiments import (
    CELL_LABEL,
    EXPERIMENT_LABEL,
    POINT_ANNOTATION,
    REPETITION_LABEL,
    Experiment,
    ExperimentSpec,
    Parameter,
    SearchMethod,
    filled,
    label_of,
    run_name,
)
from isthmus.resources.jobs import JobStatus

CPU = "cpu"
"""The class of plain processors: a run on it asks for no device."""
Point = dict[str, str]


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. `point` is None as long as a search has not chosen it."""

    index: int
    combination: int
    device: str | None = None
    site: str | None = None
    image: str | None = None
    point: Point | None = None


def cells_of(spec: ExperimentSpec) -> list[Cell]:
    """Every cell, in order."""
    matrix = spec.matrix
    combinations = itertools.product(*(_or_none(names) for names in (matrix.devices, matrix.sites, matrix.images)))
    points = list(_points(spec))
    found: list[Cell] = []
    for number, (device, site, image) in enumerate(combinations):
        for point in points:
            found.append(Cell(len(found), number, device, site, image, point))
    return found


def _or_none(names: list[str]) -> list[str | None]:
    return [*names] if names else [None]


def _points(spec: ExperimentSpec) -> Iterator[Point | None]:
    names = [parameter.name for parameter in spec.parameters]
    if spec.search.method is SearchMethod.GRID:
        for values in itertools.product(*(parameter.values or () for parameter in spec.parameters)):
            yield dict(zip(names, values, strict=True))
    elif spec.search.method is SearchMethod.RANDOM:
        for number in range(spec.points):
            # The same points for every combination: what differs between two cells is then the device alone.
            chance = random.Random(f"{spec.search.seed}:{number}")  # noqa: S311 - a search, not a secret
            yield {parameter.name: _drawn(parameter, chance) for parameter in spec.parameters}
    else:
        yield from itertools.repeat(None, spec.points)


def _drawn(parameter: Parameter, chance: random.Random) -> str:
    if parameter.values:
        return chance.choice(parameter.values)
    span = parameter.range
    assert span is not None
    if span.log:
        number = math.exp(chance.uniform(math.log(span.min), math.log(span.max)))
        number = min(max(number, span.min), span.max)
    elif span.step or span.integer:
        number = span.stepped(chance.randint(0, span.steps))
    else:
        number = chance.uniform(span.min, span.max)
    return str(round(number)) if span.integer else repr(number)


def order_of(spec: ExperimentSpec, cells: list[Cell]) -> Iterator[tuple[Cell, int]]:
    """Runs in the order they are made.

    Every cell once, then every cell again: what warms up or slows down over time then touches all cells alike. A
    search learns of a trial when all its repetitions are in, so there they go together.
    """
    if spec.search.method is SearchMethod.TPE:
        return ((cell, repetition) for cell in cells for repetition in range(spec.repetitions))
    return ((cell, repetition) for repetition in range(spec.repetitions) for cell in cells)


def job_of(experiment: Experiment, template: dict[str, Any], cell: Cell, repetition: int, point: Point) -> Any:
    """The job of one run, as it goes to the store."""
    seen = experiment.status
    names = {**point, "repetition": str(repetition)}
    names |= {n: v for n, v in (("device", cell.device), ("site", cell.site), ("image", cell.image)) if v is not None}
    meta = {
        "name": run_name(experiment.name, cell.index, repetition),
        "namespace": experiment.namespace,
        "labels": {
            **experiment.spec.labels,
            EXPERIMENT_LABEL: label_of(experiment.name),
            CELL_LABEL: str(cell.index),
            REPETITION_LABEL: str(repetition),
        },
        "annotations": {POINT_ANNOTATION: json.dumps(point, sort_keys=True)},
        "ownerReferences": [
            {
                "apiVersion": experiment.api_version,
                "kind": experiment.kind,
                "name": experiment.name,
                "uid": experiment.uid,
                "controller": True,
            }
        ],
    }
    return {
        "apiVersion": experiment.api_version,
        "kind": "Job",
        "metadata": meta,
        "spec": _spec(experiment.spec, template, cell, names),
        "status": JobStatus(member=seen.member, submitted_by=seen.submitted_by).to_json(),
    }


def _spec(spec: ExperimentSpec, template: dict[str, Any], cell: Cell, names: dict[str, str]) -> dict[str, Any]:
    made = dict(template)
    for words in ("command", "args"):
        if made.get(words):
            made[words] = [filled(word, names) for word in made[words]]
    env = [{**variable, "value": filled(variable.get("value", ""), names)} for variable in made.get("env") or ()]
    given = {variable["name"] for variable in env}
    env += [{"name": f"PARAM_{n}", "value": v} for n, v in names.items() if f"PARAM_{n}" not in given]
    made["env"] = env
    outputs = [*(made.get("outputs") or ()), *(spec.check.files if spec.check else ())]
    outputs += [spec.report.file] if spec.report else []
    made["outputs"] = list(dict.fromkeys(outputs))
    if cell.device is not None:
        resources = dict(made.get("resources") or {})
        others = [d for d in resources.get("devices") or () if d["class"] not in (cell.device, *spec.matrix.devices)]
        resources["devices"] = others if cell.device == CPU else [{"class": cell.device, "count": 1}, *others]
        made["resources"] = resources
    if cell.site is not None:
        made["placement"] = {**(made.get("placement") or {}), "sites": [cell.site]}
    if cell.image is not None:
        made["image"] = cell.image
    return made


def seed_of(spec: ExperimentSpec, cell: Cell) -> int:
    """The seed of one trial's search: the same after a restart."""
    digest = hashlib.sha256(f"{spec.search.seed}:{cell.combination}:{cell.index}".encode()).digest()
    return int.from_bytes(digest[:4]) >> 1
