"""Schemas of the kinds: valid in themselves, true of what the models take, structural where Kubernetes reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from isthmus.resources.kinds import JOB, KINDS, Kind
from isthmus.resources.schemas.documents import INT_OR_STRING, PRESERVE, json_schema, structural_schema

ALL = list(KINDS.values())
VALUE_WORDS = {
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "required",
    "anyOf",
    INT_OR_STRING,
    PRESERVE,
}
VALUE_WORDS |= {"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum"}
VALUE_WORDS |= {"exclusiveMaximum", "multipleOf", "properties", "items", "additionalProperties"}


def walk(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for part in schema.get("properties", {}).values():
        yield from walk(part)
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from walk(schema[word])


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_json_schemas_are_valid_and_take_defaults(kind: Kind) -> None:
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"].endswith(f"{kind.version}.json")


@pytest.mark.parametrize("cpus", [2, 0.5, "500m", "2"])
def test_json_schema_takes_what_the_model_takes(cpus: object) -> None:
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"command": ["true"], "resources": {"cpus": cpus}}}
    jsonschema.validate(job, json_schema(JOB))
    JOB.model.model_validate(job)


def test_json_schema_refuses_what_the_model_refuses() -> None:
    for spec in ({"commands": ["true"]}, {"command": "true"}, {"command": ["true"], "resources": {"nodes": 0}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"kind": "Job", "metadata": {"name": "j"}, "spec": spec}, json_schema(JOB))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_structural_schemas_follow_kubernetes_rules(kind: Kind) -> None:
    whole = structural_schema(kind)
    assert whole.pop("x-kubernetes-group-version-kind") == [
        {"group": kind.group, "version": kind.version, "kind": kind.name}
    ]
    assert whole["properties"]["metadata"] == {"type": "object"}
    for schema in walk(whole):
        assert set(schema) <= VALUE_WORDS, set(schema) - VALUE_WORDS
        if schema.get(INT_OR_STRING):
            assert "type" not in schema
            assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        else:
            assert isinstance(schema.get("type"), str) or schema.get(PRESERVE)
            assert "anyOf" not in schema
        assert not ("properties" in schema and "additionalProperties" in schema)
        assert schema.get("default", 0) is not None
        assert isinstance(schema.get("exclusiveMinimum", False), bool)
        assert set(schema.get("required", ())) <= set(schema.get("properties", ()))
        if schema.get("type") == "array":
            assert "items" in schema


def test_structural_schemas_keep_what_matters() -> None:
    spec = structural_schema(JOB)["properties"]["spec"]["properties"]
    assert spec["command"] == {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": 10_000,
        "description": "program and arguments, run without a shell",
    }
    assert spec["resources"]["properties"]["nodes"] == {
        "type": "integer",
        "default": 1,
        "minimum": 1,
        "maximum": 100_000,
    }
    assert spec["resources"]["properties"]["cpus"][INT_OR_STRING] is True
    assert spec["placement"]["properties"]["labels"]["additionalProperties"]["type"] == "string"
    assert spec["intent"]["enum"] == ["Run", "Hold", "Cancel"]
    assert spec["dependencies"]["items"]["required"] == ["job"]
    assert spec["dependencies"]["description"].startswith("Another job")
