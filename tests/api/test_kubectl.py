"""The real kubectl against the real server: the one on this machine, and the oldest that must work."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.testing.kubectl import Kubectl, programs, write_kubeconfig

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

JOB = """
apiVersion: isthmus.dev/v1
kind: Job
metadata:
  name: {name}
  labels: {{app: demo}}
spec:
  command: [echo, hello]
  priority: {priority}
"""


@pytest.fixture(scope="module", params=["debian", "installed"])
def program(request: pytest.FixtureRequest) -> Path:
    """A kubectl. On a machine without one of its own, Debian's is tested twice rather than not at all."""
    found = programs()
    return found.get(request.param, found["debian"])


@pytest.fixture(scope="module")
def make(platform: Any, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Kubectl]:
    def make(token: str, namespace: str = "physics") -> Kubectl:
        home = tmp_path_factory.mktemp("home")
        return Kubectl(program, home, write_kubeconfig(home / "config", platform.url, token, namespace))

    return make


@pytest.fixture(scope="module")
def kubectl(platform: Any, make: Callable[..., Kubectl]) -> Kubectl:
    return make(platform.token("root", "admin"))


@pytest.fixture(scope="module")
def as_member(platform: Any, make: Callable[..., Kubectl]) -> Kubectl:
    return make(platform.token("ada", "member", "physics"))


@pytest.fixture
def clean(kubectl: Kubectl) -> Iterator[None]:
    yield
    ok(kubectl.run("delete", "jobs.isthmus.dev", "--all", "--wait=false"))


def ok(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    assert "panic" not in done.stderr
    return done.stdout


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode != 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    assert "panic" not in done.stderr
    return done.stderr


def test_version_has_no_skew_warning(kubectl: Kubectl) -> None:
    found = json.loads(ok(kubectl.run("version", "-o", "json")))
    assert found["serverVersion"]["gitVersion"].startswith("v1.")
    assert "isthmus" in found["serverVersion"]["gitVersion"]


def test_api_resources(kubectl: Kubectl) -> None:
    lines = ok(kubectl.run("api-resources")).splitlines()
    table = {line.split()[0]: line for line in lines}
    for plural in ("jobs", "sites", "deviceclasses", "tenants", "tokens", "events", "namespaces"):
        assert plural in table
    assert "ijob" in table["jobs"]
    assert "isthmus.dev" in table["jobs"]
    grouped = ok(kubectl.run("api-resources", "--api-group=isthmus.dev", "-o", "name")).split()
    assert "jobs.isthmus.dev" in grouped
    assert "isthmus.dev/v1" in ok(kubectl.run("api-versions")).split()


def test_explain(kubectl: Kubectl) -> None:
    assert "priority" in ok(kubectl.run("explain", "job.spec"))
    assert "higher goes first" in ok(kubectl.run("explain", "ijob.spec.priority"))
    assert "FIELDS" in ok(kubectl.run("explain", "sites"))


@pytest.mark.usefixtures("clean")
def test_apply_creates_changes_and_leaves(kubectl: Kubectl) -> None:
    first = JOB.format(name="applied", priority=1)
    assert "created" in ok(kubectl.run("apply", "-f", "-", text=first))
    assert "unchanged" in ok(kubectl.run("apply", "-f", "-", text=first))
    assert "configured" in ok(kubectl.run("apply", "-f", "-", text=JOB.format(name="applied", priority=2)))
    assert ok(kubectl.run("get", "job", "applied", "-o", "jsonpath={.spec.priority}")) == "2"
    assert "immutable" in refused(kubectl.run("apply", "-f", "-", text=first.replace("hello", "bye")))
    wrong = refused(kubectl.run("apply", "-f", "-", text=first.replace("priority", "prioritty")))
    assert "prioritty" in wrong
    assert "serverside-applied" in ok(kubectl.run("apply", "--server-side", "-f", "-", text=first))
    assert ok(kubectl.run("get", "job", "applied", "-o", "jsonpath={.spec.priority}")) == "1"
    assert "dry run" in ok(
        kubectl.run("apply", "--dry-run=server", "-f", "-", text=JOB.format(name="tried", priority=1))
    )
    assert "NotFound" in refused(kubectl.run("get", "job", "tried"))
    ok(kubectl.run("diff", "-f", "-", text=first))


@pytest.mark.usefixtures("clean")
def test_create_and_get_in_every_form(kubectl: Kubectl, platform: Any) -> None:
    assert "created" in ok(kubectl.run("create", "-f", "-", text=JOB.format(name="one", priority=1)))
    assert "AlreadyExists" in refused(kubectl.run("create", "-f", "-", text=JOB.format(name="one", priority=1)))
    assert "created" in ok(
        kubectl.run("create", "-f", "-", text=JOB.format(name="two", priority=1).replace("demo", "b"))
    )
    generated = JOB.format(name="x", priority=1).replace("name: x", "generateName: gen-")
    assert "gen-" in ok(kubectl.run("create", "-f", "-", text=generated))
    platform.set_status("Job", "one", "physics", phase="Running", site="here", message="it runs")

    lines = ok(kubectl.run("get", "jobs")).splitlines()
    assert lines[0].split() == ["NAME", "PHASE", "SITE", "EXIT", "REASON", "AGE"]
    assert any(line.split()[:3] == ["one", "Running", "here"] for line in lines)
    assert ok(kubectl.run("get", "ijob", "one", "--no-headers")).split()[0] == "one"
    wide = ok(kubectl.run("get", "jobs", "-o", "wide"))
    assert "MESSAGE" in wide
    assert "it runs" in wide
    assert "kind: Job" in ok(kubectl.run("get", "job", "one", "-o", "yaml"))
    assert json.loads(ok(kubectl.run("get", "jobs", "-o", "json")))["kind"] == "List"
    assert "job.isthmus.dev/one" in ok(kubectl.run("get", "jobs", "-o", "name")).split()
    assert ok(kubectl.run("get", "jobs", "-l", "app=b", "-o", "name")).split() == ["job.isthmus.dev/two"]
    running = ok(kubectl.run("get", "jobs", "--field-selector=status.phase=Running", "-o", "name"))
    assert running.split() == ["job.isthmus.dev/one"]
    everywhere = ok(kubectl.run("get", "jobs", "-A"))
    assert everywhere.split()[0] == "NAMESPACE"
    assert "physics" in everywhere
    assert "here" in ok(kubectl.run("get", "sites"))
    assert "physics" in ok(kubectl.run("get", "namespaces"))
    assert "physics" in ok(kubectl.run("get", "tenants", "--show-labels"))
    assert "one" in ok(kubectl.run("get", "isthmus"))
    assert "one" in ok(kubectl.run("get", "jobs", "--chunk-size=1"))
    assert "NotFound" in refused(kubectl.run("get", "job", "nobody"))
    assert "demo" in ok(kubectl.run("get", "jobs", "-L", "app", "--sort-by=.metadata.name"))


def read_until(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> str:
    """What a program wrote until it is enough; ended in any case after a while."""
    timer = threading.Timer(60, process.kill)
    timer.start()
    seen = ""
    try:
        assert process.stdout is not None
        while not wanted(seen):
            line = process.stdout.readline()
            if not line:
                break
            seen += line
    finally:
        timer.cancel()
    return seen


@pytest.mark.usefixtures("clean")
def test_watch_follows_changes(kubectl: Kubectl, platform: Any) -> None:
    ok(kubectl.run("create", "-f", "-", text=JOB.format(name="seen", priority=1)))
    watching = kubectl.start("get", "jobs", "-w")
    try:
        assert "seen" in read_until(watching, lambda text: "Pending" in text)
        platform.set_status("Job", "seen", "physics", phase="Running", site="here")
        assert "here" in read_until(watching, lambda text: "Running" in text)
        platform.set_status("Job", "seen", "physics", phase="Succeeded", exitCode=0)
        last = read_until(watching, lambda text: "Succeeded" in text)
        assert "Succeeded" in last
        assert "NAME" not in last, "the header is printed once"
    finally:
        watching.kill()
        watching.communicate()


@pytest.mark.usefixtures("clean")
def test_describe_shows_events(kubectl: Kubectl, platform: Any) -> None:
    ok(kubectl.run("create", "-f", "-", text=JOB.format(name="told", priority=1)))
    uid = ok(kubectl.run("get", "job", "told", "-o", "jsonpath={.metadata.uid}"))
    involved = {"kind": "Job", "name": "told", "namespace": "physics", "uid": uid, "apiVersion": "isthmus.dev/v1"}
    platform.create(
        "Event", f"told.{uid[:8]}.{time.time_ns()}", "physics",
        involvedObject=involved, reason="Placed", message="goes to here",
        firstTimestamp="2026-01-01T00:00:00Z", lastTimestamp="2026-01-01T00:00:00Z", source={"component": "isthmus"},
    )  # fmt: skip
    described = ok(kubectl.run("describe", "job", "told"))
    assert "goes to here" in described
    assert "Placed" in described
    assert "Priority:" in described
    assert "goes to here" in ok(kubectl.run("get", "events"))
    assert "here" in ok(kubectl.run("describe", "site", "here"))


@pytest.mark.usefixtures("clean")
def test_patch_label_annotate(kubectl: Kubectl) -> None:
    ok(kubectl.run("create", "-f", "-", text=JOB.format(name="p", priority=1)))
    ok(kubectl.run("patch", "job", "p", "--type=merge", "-p", '{"spec":{"priority":5}}'))
    operations = '[{"op":"replace","path":"/spec/intent","value":"Hold"}]'
    ok(kubectl.run("patch", "job", "p", "--type=json", "-p", operations))
    assert "strategic-merge-patch+json" in refused(kubectl.run("patch", "job", "p", "-p", '{"spec":{"priority":6}}'))
    ok(kubectl.run("label", "job", "p", "team=blue"))
    ok(kubectl.run("label", "job", "p", "app-"))
    ok(kubectl.run("annotate", "job", "p", "note=some text", "--overwrite"))
    found = json.loads(ok(kubectl.run("get", "job", "p", "-o", "json")))
    assert (found["spec"]["priority"], found["spec"]["intent"]) == (5, "Hold")
    assert found["metadata"]["labels"] == {"team": "blue"}
    assert found["metadata"]["annotations"]["note"] == "some text"


@pytest.mark.usefixtures("clean")
def test_wait(kubectl: Kubectl, platform: Any) -> None:
    ok(kubectl.run("create", "-f", "-", text=JOB.format(name="w", priority=1)))
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    waiting = kubectl.start("wait", "--for=condition=Complete", "job/w", "--timeout=60s")
    platform.set_status("Job", "w", "physics", phase="Running", conditions=[condition])
    finished(waiting, "condition met")
    deleted = kubectl.start("wait", "--for=delete", "job/w", "--timeout=60s")
    ok(kubectl.run("delete", "job", "w"))
    deleted.communicate(timeout=60)
    assert deleted.returncode in (0, 1), "gone before the wait began is an error for kubectl"
    if minor(kubectl) >= 23:
        ok(kubectl.run("create", "-f", "-", text=JOB.format(name="v", priority=1)))
        waiting = kubectl.start("wait", "--for=jsonpath={.status.phase}=Running", "job/v", "--timeout=60s")
        platform.set_status("Job", "v", "physics", phase="Running")
        finished(waiting, "condition met")


def finished(process: subprocess.Popen[str], reported: str) -> None:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert reported in output


def minor(kubectl: Kubectl) -> int:
    found = json.loads(ok(kubectl.run("version", "--client", "-o", "json")))
    return int(found["clientVersion"]["minor"].rstrip("+"))


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_delete_with_every_cascade(kubectl: Kubectl, cascade: str) -> None:
    ok(kubectl.run("create", "-f", "-", text=JOB.format(name="owner", priority=1)))
    uid = ok(kubectl.run("get", "job", "owner", "-o", "jsonpath={.metadata.uid}"))
    owner = f"ownerReferences: [{{apiVersion: isthmus.dev/v1, kind: Job, name: owner, uid: {uid}}}]"
    child = JOB.format(name="child", priority=1).replace("labels:", f"{owner}\n  labels:")
    ok(kubectl.run("create", "-f", "-", text=child))
    assert "deleted" in ok(kubectl.run("delete", "job", "owner", f"--cascade={cascade}"))
    left = ok(kubectl.run("get", "jobs", "-o", "name")).split()
    assert left == (["job.isthmus.dev/child"] if cascade == "orphan" else [])


@pytest.mark.usefixtures("clean")
def test_delete_by_selector_and_by_file(kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        ok(kubectl.run("create", "-f", "-", text=JOB.format(name=name, priority=1)))
    ok(kubectl.run("delete", "-f", "-", text=JOB.format(name="a", priority=1)))
    ok(kubectl.run("delete", "jobs", "-l", "app=demo"))
    assert ok(kubectl.run("get", "jobs", "-o", "name")) == ""
    assert "NotFound" in refused(kubectl.run("delete", "job", "a"))
    ok(kubectl.run("delete", "job", "a", "--ignore-not-found"))


@pytest.mark.usefixtures("clean")
def test_replace_and_scale(kubectl: Kubectl) -> None:
    ok(kubectl.run("create", "-f", "-", text=JOB.format(name="r", priority=1)))
    ok(kubectl.run("replace", "-f", "-", text=JOB.format(name="r", priority=9)))
    assert ok(kubectl.run("get", "job", "r", "-o", "jsonpath={.spec.priority}")) == "9"
    assert "NotFound" in refused(kubectl.run("scale", "job/r", "--replicas=3"))


def test_auth(as_member: Kubectl, kubectl: Kubectl) -> None:
    assert ok(as_member.run("auth", "can-i", "create", "jobs.isthmus.dev")).strip() == "yes"
    assert as_member.run("auth", "can-i", "create", "jobs.isthmus.dev", "-n", "chemistry").stdout.strip() == "no"
    assert as_member.run("auth", "can-i", "list", "jobs.isthmus.dev", "-A").stdout.strip() == "no"
    assert as_member.run("auth", "can-i", "get", "tokens").stdout.strip() == "no"
    assert as_member.run("auth", "can-i", "get", "jobs.isthmus.dev", "--subresource=log").stdout.strip() == "yes"
    assert as_member.run("auth", "can-i", "*", "*").stdout.strip() == "no"
    assert ok(kubectl.run("auth", "can-i", "*", "*")).strip() == "yes"
    listed = ok(as_member.run("auth", "can-i", "--list"))
    assert "jobs.isthmus.dev" in listed
    assert "tokens" not in listed
    if minor(kubectl) >= 28:
        assert "ada" in ok(as_member.run("auth", "whoami"))


def test_others_are_out_of_sight(as_member: Kubectl, make: Callable[..., Kubectl]) -> None:
    assert "Forbidden" in refused(as_member.run("get", "jobs", "-n", "chemistry"))
    missing = refused(as_member.run("get", "jobs", "-n", "no-such-tenant"))
    assert missing.replace("no-such-tenant", "chemistry") == refused(as_member.run("get", "jobs", "-n", "chemistry"))
    assert "Forbidden" in refused(as_member.run("get", "jobs", "-A"))
    assert ok(as_member.run("get", "namespaces", "-o", "name")).split() == ["namespace/physics"]
    nobody = refused(make("ist_t_wrong").run("get", "jobs"))
    assert "Unauthorized" in nobody or "logged in" in nobody
