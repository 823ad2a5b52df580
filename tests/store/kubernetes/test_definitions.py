"""Our kinds in a real API server: it refuses what the models refuse, and takes what they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus._kit.plain_yaml import PlainLoader
from isthmus.errors import Invalid
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import DEVICE_CLASS, EXPERIMENT, JOB, KINDS, SITE, TENANT, TOKEN, Kind
from isthmus.resources.schemas.crds import OLDEST, VALIDATIONS, custom_kinds, custom_resource, custom_resources
from isthmus.store.kubernetes.shaping import path_of
from isthmus.testing.kubernetes_store import calling

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))
WRONG: list[tuple[Kind, dict[str, Any]]] = [
    (JOB, {}),
    (JOB, {"command": ["a"], "script": "b"}),
    (JOB, {"command": []}),
    (JOB, {"script": " \n "}),
    (JOB, {"command": ["a"], "priority": "high"}),
    (JOB, {"command": ["a"], "priority": 10**7}),
    (JOB, {"command": ["a"], "intent": "Go"}),
    (JOB, {"command": ["a"], "outputs": ["/etc/passwd"]}),
    (JOB, {"command": ["a"], "outputs": ["a/../../b"]}),
    (JOB, {"command": ["a"], "env": [{"name": "1X"}]}),
    (JOB, {"command": ["a"], "env": [{"name": "ISTHMUS_X", "value": "1"}]}),
    (JOB, {"command": ["a"], "resources": {"timeLimit": "soon"}}),
    (JOB, {"command": ["a"], "resources": {"cpus": "many"}}),
    (JOB, {"command": ["a"], "resources": {"memory": "4 potatoes"}}),
    (JOB, {"command": ["a"], "resources": {"nodes": 0}}),
    (JOB, {"command": ["a"], "array": {"indices": "a-b"}}),
    (JOB, {"command": ["a"], "dependencies": [{"job": "Not a Name"}]}),
    (JOB, {"command": ["a"], "files": {"tree": "sha256:short"}}),
    (JOB, {"command": ["a"], "slurm": {"partition": "x; rm -rf"}}),
    (SITE, {}),
    (SITE, {"driver": "slurm"}),
    (SITE, {"driver": "slurm", "slurm": {"folder": "not/absolute"}}),
    (
        SITE,
        {"driver": "slurm", "slurm": {"folder": "/x", "accounts": [{"tenant": "*", "user": "root", "shared": True}]}},
    ),
    (SITE, {"driver": "local", "exposeNodes": True}),
    (SITE, {"driver": "local", "devices": [{"class": "gpu", "paths": ["/etc/passwd"]}]}),
    (TENANT, {"localAccount": {"user": "root"}}),
    (TENANT, {"members": [{"user": "ada", "role": "king"}]}),
    (TENANT, {"budget": -1}),
    (TOKEN, {"user": "ada", "sha256": "x"}),
]


def _object(kind: Kind, spec: dict[str, Any], name: str = "x") -> dict[str, Any]:
    meta = {"name": name, **({"namespace": "ada"} if kind.namespaced else {})}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, "spec": spec}


@pytest.mark.real
@pytest.mark.anyio
async def test_the_server_refuses_what_the_models_refuse(admin_file: Path) -> None:
    async with calling(admin_file) as api:
        for kind, spec in WRONG:
            obj = _object(kind, spec)
            with pytest.raises(Invalid):
                validate(kind, obj)
            with pytest.raises(Invalid):
                await api.send("POST", path_of(kind, "ada"), f"{kind.name} {spec}", obj, {"dryRun": "All"})
        for name in ("kube-x", "isthmus-x", "a.b"):
            with pytest.raises(Invalid):
                await api.send("POST", path_of(TENANT, None), name, _object(TENANT, {}, name), {"dryRun": "All"})


@pytest.mark.real
@pytest.mark.anyio
async def test_the_server_takes_the_examples(admin_file: Path) -> None:
    taken = 0
    async with calling(admin_file) as api:
        for path in EXAMPLES:
            for obj in yaml.load_all(path.read_text(), Loader=PlainLoader):
                if not obj or obj.get("apiVersion") != "isthmus.dev/v1" or obj["kind"] not in KINDS:
                    continue
                kind = KINDS[obj["kind"]]
                obj["metadata"].setdefault("name", "generated")
                if kind.namespaced:
                    obj["metadata"]["namespace"] = "ada"
                kept = await api.send("POST", path_of(kind, "ada"), str(path), obj, {"dryRun": "All"})
                assert validate(kind, kept)["spec"] == validate(kind, obj)["spec"], path
                taken += 1
    assert taken > 3


@pytest.fixture
def admin_file(admin: Path) -> Path:
    return admin


@pytest.mark.parametrize("kind", custom_kinds(), ids=lambda kind: kind.name)
def test_a_definition(kind: Kind) -> None:
    made = custom_resource(kind)
    names, version = made["spec"]["names"], made["spec"]["versions"][0]
    assert made["metadata"]["name"] == f"{kind.plural}.isthmus.dev"
    assert (names["categories"], tuple(names["shortNames"])) == (list(kind.categories), kind.short_names)
    assert [c["name"] for c in version.get("additionalPrinterColumns", [])] == [c.name for c in kind.columns]
    assert ("status" in version.get("subresources", {})) == kind.has_status
    assert "$ref" not in str(made)


def test_newer_servers_are_told_more() -> None:
    old, new = str(custom_resources(OLDEST)), custom_resources(31)
    assert VALIDATIONS not in old
    assert "selectableFields" not in old
    job = next(made for made in new if made["spec"]["names"]["kind"] == "Job")["spec"]["versions"][0]
    assert {"jsonPath": ".status.phase"} in job["selectableFields"]
    sentences = {rule["message"] for rule in job["schema"]["openAPIV3Schema"]["properties"]["spec"][VALIDATIONS]}
    assert "args belong to a script; append them to command" in sentences


def _job(**more: Any) -> dict[str, Any]:
    return {"command": ["a"], **more}


def _experiment(**more: Any) -> dict[str, Any]:
    return {"template": _job(), **more}


def _range(**more: Any) -> dict[str, Any]:
    search = {"method": "Random", "trials": 2}
    return _experiment(parameters=[{"name": "x", "range": {"min": 1, "max": 2, **more}}], search=search)


def _slurm(**more: Any) -> dict[str, Any]:
    return {"driver": "slurm", "slurm": {"folder": "/x", **more}}


TWICE = [{"class": "gpu"}, {"class": "gpu"}]
CHOICES = [{"class": "gpu", "counts": [1]}, {"class": "gpu", "counts": [2]}]
POINT = [{"name": "x", "values": [1]}]
REFUSED: list[tuple[Kind, dict[str, Any]]] = [
    (JOB, {}),
    (JOB, _job(args=["b"])),
    (JOB, _job(resources={"anyOf": CHOICES[:1]})),
    (JOB, {"command": []}),
    (JOB, {"command": ["", "a"]}),
    (JOB, {"script": " \n "}),
    (JOB, _job(outputs=["/etc/passwd"])),
    (JOB, _job(outputs=["a/../../b"])),
    (JOB, _job(logFiles={"stdout": "a/../../b"})),
    (JOB, _job(env=[{"name": "1X"}])),
    (JOB, _job(env=[{"name": "ISTHMUS_X"}])),
    (JOB, _job(array={"indices": "a-b"})),
    (JOB, _job(resources={"devices": TWICE})),
    (JOB, _job(resources={"anyOf": CHOICES}, deadline="2030-01-01T00:00:00Z")),
    (JOB, _job(resources={"devices": TWICE[:1], "anyOf": CHOICES[:1]}, deadline="2030-01-01T00:00:00Z")),
    (JOB, _job(dependencies=[{"job": "b", "outputsInto": "../x"}])),
    (JOB, _job(dependencies=[{"job": "b", "outputsInto": "/x"}])),
    (JOB, _job(dependencies=[{"job": "b", "outputsInto": "x//"}])),
    (JOB, _job(dependencies=[{"job": "b", "outputsInto": "x", "condition": "Started"}])),
    (SITE, {"driver": "slurm"}),
    (SITE, {"driver": "kubernetes", "exposeNodes": True}),
    (SITE, _slurm(transport="SSH")),
    (SITE, _slurm(transport="REST")),
    (SITE, _slurm(accounts=[{"tenant": "*", "user": "0", "shared": True}])),
    (SITE, _slurm(accounts=[{"tenant": "*", "user": "A b", "shared": True}])),
    (SITE, _slurm(accounts=[{"tenant": "*", "user": "everybody"}])),
    (SITE, _slurm(accounts=[{"tenant": "a", "user": "{tenant}", "member": "*@b", "shared": False}])),
    (SITE, _slurm(accounts=[{"tenant": "*", "user": "{member}", "member": "*@*"}])),
    (SITE, _slurm(rest={"url": "ftp://x"})),
    (SITE, {"driver": "local", "local": {"visible": ["/"]}}),
    (SITE, {"driver": "local", "local": {"visible": ["/a/../b"]}}),
    (TENANT, {"localAccount": {"user": "root"}}),
    (EXPERIMENT, {"template": {}}),
    (EXPERIMENT, {"template": _job(array={"indices": "0-3"})}),
    (EXPERIMENT, {"template": _job(intent="Hold")}),
    (EXPERIMENT, _experiment(parameters=POINT * 2)),
    (EXPERIMENT, _experiment(parameters=[{"name": "x", "range": {"min": 1, "max": 2}}])),
    (EXPERIMENT, _experiment(search={"method": "Random", "trials": 2})),
    (EXPERIMENT, _experiment(parameters=POINT, search={"method": "TPE", "trials": 2})),
    (EXPERIMENT, _experiment(stop={"target": 1})),
    (EXPERIMENT, _range(min=3)),
    (EXPERIMENT, _range(min=0, log=True)),
    (EXPERIMENT, _range(step=0.5, log=True)),
    (EXPERIMENT, _range(min=1.5, integer=True)),
    (EXPERIMENT, _range(step=0.5, integer=True)),
    (EXPERIMENT, _experiment(parameters=[{"name": "x"}])),
    (EXPERIMENT, _experiment(parameters=[{"name": "site", "values": [1]}])),
    (EXPERIMENT, _experiment(matrix={"devices": ["gpu", "gpu"]})),
    (EXPERIMENT, _experiment(matrix={"images": ["a", "a"]})),
    (EXPERIMENT, _experiment(parameters=POINT, search={"trials": 2})),
    (EXPERIMENT, _experiment(parameters=POINT, search={"method": "Random"})),
    (EXPERIMENT, _experiment(parameters=POINT, search={"method": "TPE"}, objective={"value": "loss"})),
    (EXPERIMENT, _experiment(parameters=POINT, search={"method": "Random", "trials": 2, "pruning": {}})),
    (EXPERIMENT, _experiment(check={})),
    (EXPERIMENT, _experiment(report={"file": "/x"})),
    (DEVICE_CLASS, {"meter": {"source": "Command"}}),
    (DEVICE_CLASS, {"use": {"source": "File"}}),
]
"""What each rule in CEL refuses, and the model with the same sentence."""


def sentences(kind: Kind, spec: dict[str, Any]) -> list[str]:
    """What rules in CEL have to say of a spec, by what the model says of it."""
    with pytest.raises(Invalid) as refused:
        validate(kind, _object(kind, spec))
    return [rule.message for rule in kind.crd_rules if rule.cel and rule.message in refused.value.message]


@pytest.mark.parametrize(("kind", "spec"), REFUSED)
def test_rules_say_the_sentence_of_the_model(kind: Kind, spec: dict[str, Any]) -> None:
    assert sentences(kind, spec)


def test_every_rule_in_cel_is_tried() -> None:
    said = {sentence for kind, spec in REFUSED for sentence in sentences(kind, spec)}
    assert {rule.message for kind in KINDS.values() for rule in kind.crd_rules if rule.cel} == said


def test_a_kind_with_replicas_can_be_scaled() -> None:
    from dataclasses import replace

    made = custom_resource(replace(SITE, scale=(".spec.replicas", ".status.replicas")))
    scale = made["spec"]["versions"][0]["subresources"]["scale"]
    assert scale == {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
