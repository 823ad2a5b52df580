"""The control plane with a cluster as its store, under the account and the rights that are installed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from isthmus.testing.kubernetes_store import calling, define
from isthmus.testing.servers import ServerProcess, eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


class Kubectl:
    """kubectl as the cluster's administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        self._words = ["kubectl", "--kubeconfig", str(kubeconfig)]

    def __call__(self, *words: str, given: Any = None, fails: bool = False) -> str:
        done = subprocess.run(
            [*self._words, *words], input=json.dumps(given) if given else None, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert fails == (done.returncode != 0), done.stderr
        return done.stdout + (done.stderr if fails else "")

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))


def leading(server: ServerProcess) -> bool:
    return b"isthmus_leading 1.0" in server.request("/metrics")


@pytest.fixture
def kubectl(admin: Path) -> Kubectl:
    return Kubectl(admin)


@pytest.fixture
def server(operator: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path / "one", store=f"kubernetes:{operator}")
    made.start()
    eventually(lambda: leading(made), timeout=60)
    yield made
    made.stop()


def _job(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": meta, "spec": spec}


def _tenant(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "isthmus.dev/v1", "kind": "Tenant", "metadata": {"name": name}, "spec": spec}


def _phase(kubectl: Kubectl, name: str, namespace: str) -> str:
    return str(kubectl.json("get", "ijob", name, "-n", namespace)["status"]["phase"])


def test_a_tenant_and_its_jobs_by_kubectl(server: ServerProcess, kubectl: Kubectl) -> None:
    members = [{"user": "ada", "role": "member"}, {"user": "eve", "role": "viewer"}]
    kubectl("apply", "-f", "-", given=_tenant("optics", members=members, quota={"cpus": "8"}))
    eventually(lambda: "isthmus-viewer" in kubectl("get", "role", "-n", "optics"), timeout=60)
    eventually(lambda: kubectl("get", "quota", "isthmus", "-n", "optics", "--ignore-not-found"), timeout=60)
    quota = kubectl.json("get", "quota", "isthmus", "-n", "optics")
    assert quota["spec"]["hard"] == {"requests.cpu": "8"}
    for user, verb, what, answer in (
        ("ada", "create", "jobs.isthmus.dev", "yes"),
        ("eve", "get", "jobs.isthmus.dev", "yes"),
        ("eve", "create", "jobs.isthmus.dev", "no"),
        ("ada", "update", "jobs.isthmus.dev --subresource=status", "no"),
        ("ada", "get", "tokens.isthmus.dev", "no"),
        ("bob", "get", "jobs.isthmus.dev", "no"),
    ):
        said = kubectl("auth", "can-i", verb, *what.split(), "-n", "optics", "--as", user, fails=answer == "no")
        assert said.startswith(answer), (user, verb, what)
    script = "echo ran here"
    kubectl("apply", "-f", "-", "--as", "ada", given=_job("hello", "optics", script=script))
    eventually(lambda: _phase(kubectl, "hello", "optics") == "Succeeded", timeout=60)
    assert server.output("hello", "optics") == "ran here\n"
    _check_refused(kubectl)
    _check_promised(kubectl)
    _check_members_leave(kubectl)
    kubectl("delete", "itenant", "optics", "--wait=false")
    eventually(lambda: not kubectl("get", "namespace", "optics", "--ignore-not-found"), timeout=90)


def _check_refused(kubectl: Kubectl) -> None:
    """What only the model can tell is told on the job, with the model's own sentence."""
    kubectl("apply", "-f", "-", given=_job("bad", "optics", command=["a"], placement={"expression": "location =="}))
    eventually(lambda: _phase(kubectl, "bad", "optics") == "Failed", timeout=60)
    status = kubectl.json("get", "ijob", "bad", "-n", "optics")["status"]
    assert status["reason"] == "Invalid"
    assert "expected a value but found 'the end'" in status["message"]
    accepted = next(c for c in status["conditions"] if c["type"] == "Accepted")
    assert (accepted["status"], accepted["message"]) == ("False", status["message"])


def _check_promised(kubectl: Kubectl) -> None:
    """What was promised to an engine cannot be changed behind its back."""
    kubectl("apply", "-f", "-", given=_job("held", "optics", script="echo first", intent="Hold"))
    eventually(
        lambda: kubectl.json("get", "ijob", "held", "-n", "optics")["status"].get("reason") == "Held", timeout=60
    )
    kubectl("patch", "ijob", "held", "-n", "optics", "--type", "merge", "-p", '{"spec":{"script":"echo second"}}')
    eventually(lambda: _phase(kubectl, "held", "optics") == "Failed", timeout=60)
    status = kubectl.json("get", "ijob", "held", "-n", "optics")["status"]
    assert "cannot change spec.script any more" in status["message"]


def _check_members_leave(kubectl: Kubectl) -> None:
    kubectl("patch", "itenant", "optics", "--type", "merge", "-p", '{"spec":{"members":[]}}')
    eventually(
        lambda: kubectl.json("get", "rolebinding", "isthmus-member", "-n", "optics").get("subjects") is None, timeout=60
    )


def test_a_namespace_of_others_is_not_taken(server: ServerProcess, kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "theirs")
    try:
        kubectl("apply", "-f", "-", given=_tenant("theirs"))

        def reported() -> Any:
            status = kubectl.json("get", "itenant", "theirs")["status"]
            return next((c for c in status["conditions"] if c["type"] == "Namespace"), None)

        condition = eventually(reported, timeout=60)
        assert condition["status"] == "False"
        assert "kubectl label namespace theirs isthmus.dev/tenant=theirs" in condition["message"]
        assert "isthmus" not in kubectl("get", "role,rolebinding,quota", "-n", "theirs")
        kubectl("delete", "itenant", "theirs", "--wait=true")
        assert kubectl("get", "namespace", "theirs")
    finally:
        kubectl("delete", "namespace", "theirs", "--wait=false")


def test_a_leader_that_was_paused_wakes_up_and_does_nothing(
    server: ServerProcess, operator: Path, tmp_path: Path, kubectl: Kubectl
) -> None:
    second = ServerProcess(tmp_path / "two", store=f"kubernetes:{operator}")
    second.start()
    assert server.process is not None
    try:
        assert not leading(second)
        names = [f"job-{n}" for n in range(6)]
        script = "echo ran; sleep 0.5"
        for name in names[:3]:
            server.submit(name, script=script, resources={"cpus": "0.5"})
        os.kill(server.process.pid, signal.SIGSTOP)
        for name in names[3:]:
            second.submit(name, script=script, resources={"cpus": "0.5"})
        eventually(lambda: leading(second), timeout=60)
        os.kill(server.process.pid, signal.SIGCONT)
        for name in names:
            assert second.finished(name, timeout=90)["phase"] == "Succeeded"
            assert second.output(name) == "ran\n", "once, and not twice"
        eventually(lambda: not leading(server), timeout=30)
        holder = kubectl.json("get", "lease", "leader", "-n", "isthmus-system")["spec"]["holderIdentity"]
        assert str(second.process.pid if second.process else "") in holder
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
        second.stop()


def test_a_kind_that_is_removed_under_the_operator(server: ServerProcess, kubectl: Kubectl, admin: Path) -> None:
    """Its objects are deleted first: the run is ended properly. Defined again, everything goes on."""
    seconds = _run_for_long(server, "default")
    kubectl("delete", "crd", "jobs.isthmus.dev", "--wait=false")
    try:
        eventually(lambda: not kubectl("get", "crd", "jobs.isthmus.dev", "--ignore-not-found"), timeout=120)
        assert not _alive(seconds), "nothing of a deleted job runs on"
        with pytest.raises(HTTPError) as caught:
            server.request(server.jobs())
        with caught.value as answer:
            assert answer.code == 503
    finally:
        asyncio.run(_define(admin))

    def taken() -> bool:
        try:
            server.submit("again", script="echo again")
        except HTTPError as error:
            with error:
                return error.code == 409
        return True

    eventually(taken, timeout=60)
    assert server.finished("again", timeout=90)["phase"] == "Succeeded"


async def _define(admin: Path) -> None:
    async with calling(admin) as api:
        await define(api)


def test_a_namespace_that_is_deleted_while_jobs_run(server: ServerProcess, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", given=_tenant("fleeting"))
    eventually(lambda: kubectl("get", "role", "isthmus-admin", "-n", "fleeting", "--ignore-not-found"), timeout=60)
    seconds = _run_for_long(server, "fleeting")
    first = _uid(kubectl, "fleeting")
    kubectl("delete", "namespace", "fleeting", "--wait=false")
    eventually(lambda: _uid(kubectl, "fleeting") not in ("", first), timeout=180)  # made again: its tenant is there
    assert not _alive(seconds), "nothing of a deleted job runs on"
    eventually(lambda: kubectl("get", "role", "isthmus-admin", "-n", "fleeting", "--ignore-not-found"), timeout=60)
    kubectl("delete", "itenant", "fleeting")


def _uid(kubectl: Kubectl, namespace: str) -> str:
    return kubectl("get", "namespace", namespace, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")


def _run_for_long(server: ServerProcess, namespace: str) -> str:
    """A job that runs, known by how long it would."""
    seconds = f"1000.{uuid.uuid4().int % 10**9}"
    server.submit("runs", "sleep", seconds, namespace=namespace)
    eventually(lambda: server.status("runs", namespace)["phase"] == "Running" and _alive(seconds), timeout=60)
    return seconds


def _alive(word: str) -> bool:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if file.read_bytes().split(b"\0")[:2] == [b"sleep", word.encode()]:
                return True
        except OSError:  # it ended meanwhile
            continue
    return False
