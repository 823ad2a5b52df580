"""Installing into a real cluster: as a command, as YAML, as a chart."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.errors import NotFound
from isthmus.server.manifests import Installation, manifests
from isthmus.testing.kubernetes_store import calling

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "isthmus"


def isthmus(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "isthmus.cli", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def key(obj: dict[str, Any]) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


async def found(kubeconfig: Path, path: str) -> Any:
    async with calling(kubeconfig) as api:
        try:
            return await api.get(path, path)
        except NotFound:
            return None


@pytest.mark.real
def test_install_tries_applies_and_can_be_repeated(admin: Path) -> None:
    deployment = "/apis/apps/v1/namespaces/isthmus-system/deployments/isthmus"
    secret = "/api/v1/namespaces/isthmus-system/secrets/isthmus-admin"
    words = ("install", "--kubernetes", "--kubeconfig", str(admin), "--replicas", "0")
    assert "deployment/isthmus would be applied" in isthmus(*words, "--dry-run")
    assert asyncio.run(found(admin, deployment)) is None
    assert "deployment/isthmus applied" in isthmus(*words)
    kept = asyncio.run(found(admin, secret))
    version = asyncio.run(found(admin, deployment))["metadata"]["generation"]
    again = isthmus(*words)
    assert "secret/isthmus-admin kept" in again
    assert asyncio.run(found(admin, secret))["data"] == kept["data"], "the token stays"
    assert asyncio.run(found(admin, deployment))["metadata"]["generation"] == version


def test_yaml_is_what_is_applied() -> None:
    written = list(yaml.safe_load_all(isthmus("install", "--kubernetes", "-o", "yaml", "--image", "x:1")))
    assert written == manifests(Installation(image="x:1"))
    fewer = list(yaml.safe_load_all(isthmus("install", "--kubernetes", "-o", "yaml", "--definitions-only")))
    assert not {"Deployment", "Service", "PersistentVolumeClaim"} & {obj["kind"] for obj in fewer}


@pytest.mark.real
@pytest.mark.parametrize("replicas", [1, 3])
def test_the_chart_says_the_same(replicas: int) -> None:
    helm = Path(sys.executable).parent / "helm"
    chosen = ["--set", f"replicas={replicas}", "--set", "image=x:1", "--set", "storageClass=nfs"]
    text = subprocess.run(
        [helm, "template", "isthmus", CHART, "--include-crds", *chosen], capture_output=True, text=True, check=True
    ).stdout
    made = {key(obj): obj for obj in yaml.safe_load_all(text) if obj}
    wanted = {
        key(obj): obj
        for obj in manifests(Installation(image="x:1", replicas=replicas, storage_class="nfs"))
        if obj["kind"] != "Namespace"  # helm install --create-namespace makes it
    }
    assert made == wanted


def test_the_platform_reads_no_secrets_and_no_pods() -> None:
    for obj in manifests(Installation()):
        for rule in obj.get("rules", ()):
            assert "*" not in rule["resources"]
            if rule["apiGroups"] != ["isthmus.dev"]:  # which has Secrets of its own, sealed
                assert not {"secrets", "pods"} & set(rule["resources"])
            assert "*" not in rule["verbs"]
            assert "*" not in rule["apiGroups"]


def test_the_image_is_built_from_what_is_there() -> None:
    """Building it takes minutes and a registry; what its file names can be checked at once."""
    lines = (ROOT / "deploy" / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [words[1:-1] for line in lines if (words := line.split()) and words[0] == "COPY"]
    assert copied
    assert [name for names in copied for name in names if not (ROOT / name).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [re.search(r"\[([a-z,]+)\]", line) for line in lines if re.search(r"\bpip (wheel|install)\b", line)]
    extras = [set(found[1].split(",")) for found in asked if found]
    assert extras[0] == extras[1] == set(project["optional-dependencies"])
    assert {project["readme"], *project["license-files"]} <= {name for names in copied for name in names}
    command = json.loads(next(line for line in lines if line.startswith("CMD ")).removeprefix("CMD "))
    pod = next(obj for obj in manifests(Installation()) if obj["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert command[0] == pod["containers"][0]["command"][0] in project["scripts"]
    assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['fsGroup']}" in lines
