from __future__ import annotations

from typing import Any

import pytest

from isthmus.errors import Invalid
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import DEVICE_CLASS, JOB, KINDS, SITE, TENANT, TOKEN, kind_named
from isthmus.resources.work.arrays import expand_indices


def job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec}


def complaint(obj: dict[str, Any]) -> tuple[str, dict[str, str]]:
    with pytest.raises(Invalid) as caught:
        validate(JOB, obj)
    return caught.value.message, {cause.field: cause.message for cause in caught.value.causes}


def test_defaults_are_filled_in() -> None:
    made = validate(JOB, job(command=["true"]))
    assert made["spec"]["resources"] == {"cpus": "1", "devices": [], "nodes": 1, "tasks": 1}
    assert made["status"]["phase"] == "Pending"
    assert validate(JOB, made) == made


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({}, "spec", "exactly one of command"),
        ({"command": ["a"], "script": "b"}, "spec", "exactly one of command"),
        ({"command": []}, "spec.command", "name a program"),
        (
            {
                "command": ["a"],
                "deadline": "2030-01-01T00:00:00Z",
                "resources": {"anyOf": [{"class": "gpu"}]},
                "profile": [{"duration": "1h"}],
            },
            "spec",
            "name one, such as class: gpu",
        ),
        ({"command": ["a\0b"]}, "spec.command", "NUL"),
        ({"command": ["a"], "comand": 1}, "spec.comand", "did you mean command?"),
        ({"command": ["a"], "resources": {"cpus": "lots"}}, "spec.resources.cpus", "write it like 2, 0.5 or 500m"),
        ({"command": ["a"], "resources": {"memory": "4 apples"}}, "spec.resources.memory", "512Mi"),
        ({"command": ["a"], "resources": {"timeLimit": 90}}, "spec.resources.timeLimit", "has no unit"),
        (
            {"command": ["a"], "resources": {"devices": [{"class": "gpu"}, {"class": "gpu"}]}},
            "spec.resources.devices",
            "twice",
        ),
        ({"command": ["a"], "env": [{"name": "A B"}]}, "spec.env[0].name", "letters, digits"),
        ({"command": ["a"], "env": [{"name": "ISTHMUS_X"}]}, "spec.env[0].name", "set by the platform"),
        ({"command": ["a"], "outputs": ["../x"]}, "spec.outputs", "below the job's own folder"),
        ({"command": ["a"], "outputs": ["/etc/passwd"]}, "spec.outputs", "below the job's own folder"),
        ({"command": ["a"], "array": {"indices": "5-1"}}, "spec.array.indices", "empty range"),
        ({"command": ["a"], "array": {"indices": "0-99999999"}}, "spec.array.indices", "more than"),
        ({"command": ["a"], "deadline": "tomorrow"}, "spec.deadline", "2026-01-31T18:00:00Z"),
        ({"command": ["a"], "placement": {"expression": "a =="}}, "spec.placement.expression", "expected a value"),
        ({"command": ["a"], "files": {"tree": "sha256:../../x"}}, "spec.files.tree", "does not match"),
        (
            {"command": ["a"], "dependencies": [{"job": "../b"}]},
            "spec.dependencies[0].job",
            "is not a name|does not match",
        ),
        ({"command": ["a"], "priority": "high"}, "spec.priority", "whole number"),
    ],
)
def test_bad_input_names_the_field_and_the_remedy(spec: dict[str, Any], field: str, words: str) -> None:
    message, causes = complaint(job(**spec))
    assert field in causes
    import re

    assert re.search(words, causes[field])
    assert field in message


def test_a_name_with_dots_and_slashes_is_refused() -> None:
    message, _ = complaint({**job(command=["a"]), "metadata": {"name": "../../etc"}})
    assert "is not a name" in message


def test_indices() -> None:
    assert expand_indices("0-3") == [0, 1, 2, 3]
    assert expand_indices("1,3, 5") == [1, 3, 5]
    assert expand_indices("0-10:5,7") == [0, 5, 7, 10]


@pytest.mark.parametrize("word", ["Job", "job", "jobs", "ijob", "jobs.isthmus.dev"])
def test_a_kind_is_found_by_any_of_its_names(word: str) -> None:
    assert kind_named(word) is JOB


def test_no_two_kinds_share_a_name() -> None:
    names = [name for kind in KINDS.values() for name in {kind.singular, kind.plural, *kind.short_names}]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [
        (TENANT, {"localAccount": {"user": "root"}}, "never run as root"),
        (TENANT, {"members": [{"user": "a", "role": "king"}]}, "members"),
        (SITE, {}, "driver"),
        (SITE, {"driver": "local", "devices": [{"class": "x", "paths": ["/etc/shadow"]}]}, "below /dev"),
        (DEVICE_CLASS, {"local": {"paths": ["/dev/../etc"]}}, "below /dev"),
        (TOKEN, {"user": "a", "sha256": "secret"}, "does not match"),
    ],
)
def test_the_other_kinds_check_their_fields_too(kind: Any, spec: dict[str, Any], words: str) -> None:
    obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "a"}, "spec": spec}
    with pytest.raises(Invalid, match=words):
        validate(kind, obj)
