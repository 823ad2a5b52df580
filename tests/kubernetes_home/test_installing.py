"""Installing into a real cluster: as a command, as YAML, as a chart."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.errors import NotFound
from isthmus.server.manifests import Installation, manifests
from isthmus.testing.kubernetes_home import calling

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "isthmus"


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
            assert not {"secrets", "pods", "*"} & set(rule["resources"])
            assert "*" not in rule["verbs"]
            assert "*" not in rule["apiGroups"]
