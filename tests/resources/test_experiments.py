"""What an Experiment refuses, and what it says to do instead."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.errors import Invalid
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EXPERIMENT
from isthmus.resources.schemas.documents import json_schema, structural_schema

TEMPLATE = {"command": ["true"]}
RANGE = [{"name": "x", "range": {"min": 0, "max": 1}}]


def made(**spec: Any) -> dict[str, Any]:
    return {"kind": "Experiment", "metadata": {"name": "e"}, "spec": {"template": TEMPLATE, **spec}}


def test_defaults_and_numbers_as_values() -> None:
    spec = validate(EXPERIMENT, made(parameters=[{"name": "lr", "values": [0.1, 1, True, "a"]}]))["spec"]
    assert spec["parameters"][0]["values"] == ["0.1", "1", "true", "a"]
    assert (spec["search"]["method"], spec["repetitions"], spec["intent"]) == ("Grid", 1, "Run")


@pytest.mark.parametrize(
    ("spec", "reported"),
    [
        ({"template": {}}, "spec.template: give exactly one of command"),
        ({"parameters": [{"name": "x"}]}, "exactly one of values"),
        ({"parameters": RANGE}, "x has a range, which a Grid cannot enumerate; give values, or set search.method"),
        ({"parameters": [{"name": "device", "values": [1]}]}, "'device' is set by the matrix"),
        ({"parameters": [{"name": "x", "range": {"min": 2, "max": 1}}]}, "min is above max"),
        ({"parameters": [{"name": "x", "range": {"min": 0, "max": 1, "log": True}}]}, "above 0 where log"),
        ({"search": {"method": "TPE"}}, "trials is required"),
        ({"search": {"method": "TPE", "trials": 3}, "parameters": RANGE}, "objective is required for TPE"),
        ({"search": {"method": "Random", "trials": 3}}, "nothing to search"),
        ({"search": {"pruning": {}}}, "pruning is for the method TPE"),
        ({"check": {}}, "says nothing to compare"),
        ({"check": {"device": "b", "files": ["f"]}, "matrix": {"devices": ["a"]}}, "'b' is not in the matrix"),
        ({"stop": {"target": 1}}, "stop.target needs an objective"),
        ({"matrix": {"devices": ["a", "a"]}}, "names one twice"),
        ({"template": {**TEMPLATE, "array": {"indices": "0-1"}}}, "no place in an experiment"),
        ({"report": {"file": "../x"}}, "below the job's own folder"),
        ({"parameters": [{"name": "x", "values": list(range(60))}], "matrix": {"devices": [*"abcdefghijklmnopqrst"]}},
         "1200 cells"),
        ({"repetitions": 1000, "parameters": [{"name": "x", "values": list(range(11))}]}, "11000 runs"),
    ],
)  # fmt: skip
def test_faults_are_named_with_their_remedy(spec: dict[str, Any], reported: str) -> None:
    with pytest.raises(Invalid, match=reported.replace("(", r"\(")):
        validate(EXPERIMENT, made(**spec))


def test_it_has_schemas() -> None:
    assert "template" in json_schema(EXPERIMENT)["$defs"]["ExperimentSpec"]["properties"]
    cells = structural_schema(EXPERIMENT)["properties"]["status"]["properties"]["cells"]
    assert cells["items"]["properties"]["runTime"]["properties"]["median"]["type"] == "number"
