"""kubectl, the oldest and the installed one, reads the documents: explain, checks of fields, dry runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from isthmus.testing.apis import RunningApi, write_tls_kubeconfig
from isthmus.testing.kubectl import Kubectl, programs

pytestmark = [pytest.mark.anyio, pytest.mark.real]
JOB = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"command": ["true"]}}


@pytest.fixture(params=["debian", "installed"])
def kubectl(request: pytest.FixtureRequest, tls_api: RunningApi, tmp_path: Path) -> Kubectl:
    found = programs()
    # Where no kubectl is installed, the old one is tried twice.
    program = found.get(request.param, found["debian"])
    (tmp_path / "home").mkdir()
    return Kubectl(program, tmp_path / "home", write_tls_kubeconfig(tls_api, "admin"))


async def run(kubectl: Kubectl, *args: str, text: str | None = None) -> CompletedProcess[str]:
    return await asyncio.to_thread(kubectl.run, *args, text=text)


async def test_explain(kubectl: Kubectl) -> None:
    for path, words in {
        "job.spec.resources": ("timeLimit", "the job is ended after this long", "nodes\t<integer>"),
        "ijob.spec.dependencies": ("condition", "<string>"),
        "sites.status.capacity": ("memoryBytes",),
        "tenant": ("A person or group",),
        "job.metadata": ("labels\t<map[string]string>",),
    }.items():
        done = await run(kubectl, "explain", path, "--api-version=isthmus.dev/v1")
        assert done.returncode == 0, done.stderr
        for word in words:
            assert word in done.stdout
    done = await run(kubectl, "explain", "events")
    assert "involvedObject" in done.stdout, done.stderr
    done = await run(kubectl, "explain", "job.spec.nothing", "--api-version=isthmus.dev/v1")
    assert done.returncode == 1


async def test_explain_the_whole(kubectl: Kubectl) -> None:
    done = await run(kubectl, "explain", "job", "--recursive", "--api-version=isthmus.dev/v1")
    assert done.returncode == 0, done.stderr
    for word in ("backoff", "expression", "peakMemoryBytes", "exitCode"):
        assert word in done.stdout


async def test_good_manifests_pass_the_checks(kubectl: Kubectl) -> None:
    resources = {"cpus": 2, "memory": "4Gi", "devices": [{"class": "gpu"}]}
    spec = {"command": ["true"], "env": [{"name": "A", "value": "1"}], "resources": resources}
    good = {**JOB, "metadata": {"name": "j", "creationTimestamp": None, "labels": {"a": "b"}}, "spec": spec}
    for verb in (["apply"], ["apply", "--dry-run=server"], ["replace"]):
        done = await run(kubectl, *verb, "-f", "-", text=json.dumps(good))
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("spec", "word"), [({"command": ["true"], "comand": []}, "comand"), ({"command": "true"}, "command")]
)
async def test_wrong_fields_are_named(kubectl: Kubectl, spec: dict[str, object], word: str) -> None:
    for verb in ("create", "apply"):
        done = await run(kubectl, verb, "-f", "-", text=json.dumps({**JOB, "spec": spec}))
        assert done.returncode == 1
        assert word in done.stderr
