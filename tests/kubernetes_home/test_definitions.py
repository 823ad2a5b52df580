"""Our kinds in a real API server: it refuses what the models refuse, and takes what they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus._kit.plain_yaml import PlainLoader
from isthmus.errors import Invalid
from isthmus.resources.crds import OLDEST, RULES, VALIDATIONS, custom_kinds, custom_resource, custom_resources
from isthmus.resources.kinds import JOB, KINDS, SITE, TENANT, TOKEN, Kind
from isthmus.resources.validation import validate
from isthmus.store.kubernetes.shaping import path_of
from isthmus.testing.kubernetes_home import calling

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml"))
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
    (SITE, {"driver": "slurm", "slurm": {"folder": "/x", "accounts": [{"tenant": "*", "user": "root"}]}}),
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


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (JOB, {}),
        (JOB, {"command": ["a"], "args": ["b"]}),
        (SITE, {"driver": "slurm"}),
        (SITE, {"driver": "slurm", "slurm": {"folder": "/x", "transport": "SSH"}}),
        (SITE, {"driver": "slurm", "slurm": {"folder": "/x", "transport": "REST"}}),
        (SITE, {"driver": "kubernetes", "exposeNodes": True}),
    ],
)
def test_rules_say_the_sentence_of_the_model(kind: Kind, spec: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        validate(kind, _object(kind, spec))
    sentences = [rule.message for rule in RULES if rule.kind is kind and rule.cel]
    assert any(sentence in refused.value.message for sentence in sentences)


def test_a_kind_with_replicas_can_be_scaled() -> None:
    from dataclasses import replace

    made = custom_resource(replace(SITE, scale=(".spec.replicas", ".status.replicas")))
    scale = made["spec"]["versions"][0]["subresources"]["scale"]
    assert scale == {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
