"""A whole platform with a Kubernetes site: from the command line to the pods and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus._kit.crashpoints import VARIABLE
from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.lab.kubernetes.layout import IMAGE
from isthmus.lab.kubernetes.registering import manifests
from isthmus.testing.servers import CommandLine, ServerProcess, eventually, running_server

from .test_exactly_once import JOBS, PODS

pytestmark = [pytest.mark.real, pytest.mark.kubernetes]
SITE = "lab-kubernetes"


def register(server: ServerProcess, lab: KubernetesLab) -> None:
    plurals = {"Site": "sites", "DeviceClass": "deviceclasses"}
    for obj in manifests(lab.place.site_kubeconfig, SITE):
        server.request(f"/apis/isthmus.dev/v1/{plurals[obj['kind']]}", obj)
    wait_ready(server)


def wait_ready(server: ServerProcess) -> None:
    eventually(lambda: server.request(f"/apis/isthmus.dev/v1/sites/{SITE}")["status"].get("phase") == "Ready")


@pytest.fixture(scope="module")
def server(lab: KubernetesLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        register(running, lab)
        yield running


@pytest.fixture
def isthmus(server: ServerProcess, tmp_path: Path) -> CommandLine:
    return server.command_line(tmp_path)


def test_run_on_a_board_with_files_and_outputs(isthmus: CommandLine, server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("seven\n")
    script = "cat in.txt; echo boards $ISTHMUS_DEVICES_AKIDA; mkdir out; echo r > out/r.csv; echo bad >&2; exit 3"
    words = ["--site", SITE, "--device", "akida", "--name", "board", "--outputs", "out/*", "--", "sh", "-c", script]
    done = isthmus("run", *words)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "seven\nboards 1\n"
    assert "bad" in done.stderr
    assert (tmp_path / "out" / "r.csv").read_text() == "r\n"
    status = server.status("board")
    assert status["usage"]["energySource"] == "estimated"
    assert status["usage"]["peakMemoryBytes"] > 0


def test_an_array_and_a_dependency(server: ServerProcess) -> None:
    at = {"sites": [SITE]}
    script = "#!/bin/sh\necho $ISTHMUS_ARRAY_INDEX; test $ISTHMUS_ARRAY_INDEX != 2\n"
    server.submit("swarm", script=script, array={"indices": "0-3", "limit": 2}, placement=at)
    after = [{"job": "swarm", "condition": "Finished"}]
    server.submit("after", "echo", "after", placement=at, dependencies=after)
    status = server.finished("swarm")
    assert (status["phase"], status["array"]["succeeded"], status["array"]["failed"]) == ("Failed", 3, 1)
    assert server.output("swarm-3") == "3\n"
    assert server.finished("after")["phase"] == "Succeeded"


def test_cancel_retries_and_deleting(server: ServerProcess, lab: KubernetesLab) -> None:
    at = {"sites": [SITE]}
    server.submit("stopped", "sh", "-c", "echo begun; exec sleep 1000", placement=at)
    eventually(lambda: server.status("stopped")["phase"] == "Running", timeout=60)
    server.patch("stopped", intent="Cancel")
    assert server.finished("stopped")["phase"] == "Cancelled"
    server.submit("again", "sh", "-c", "exit 1", placement=at, retries={"limit": 1, "backoff": "100ms"})
    status = server.finished("again")
    assert (status["phase"], status["attempt"]) == ("Failed", 1)
    uid = server.job("again")["metadata"]["uid"]
    names = [job["metadata"]["name"] for job in lab.asker.ask(JOBS)["items"]]
    assert f"isthmus-{uid}-1" in names
    server.request(f"{server.jobs()}/again", method="DELETE")

    def left() -> list[str]:
        jobs, pods = (lab.asker.ask(path)["items"] for path in (JOBS, PODS))
        return [name for obj in (*jobs, *pods) if uid in (name := obj["metadata"]["name"])]

    eventually(lambda: not left(), timeout=60)


def test_an_evicted_job_is_tried_again_as_it_says(server: ServerProcess, lab: KubernetesLab) -> None:
    script = "case $ISTHMUS_RUN_ID in *.0) echo first; exec sleep 1000;; *) echo second;; esac"
    retries = {"limit": 1, "backoff": "100ms"}
    server.submit("evicted", "sh", "-c", script, placement={"sites": [SITE]}, retries=retries)
    eventually(lambda: server.status("evicted")["phase"] == "Running", timeout=90)
    name = f"isthmus-{server.job('evicted')['metadata']['uid']}-0"
    asked = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name, "namespace": "isthmus"}}
    lab.asker.ask(f"{PODS}/{name}/eviction", {**asked, "deleteOptions": {"gracePeriodSeconds": 1}})
    status = server.finished("evicted", timeout=120)
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1)
    assert [(past["reason"], past["attempt"]) for past in status["tries"]] == [("NodeLost", 0)]
    assert server.output("evicted").endswith("second\n")


def test_options_for_other_engines_are_refused(server: ServerProcess) -> None:
    server.submit("wide", "true", resources={"nodes": 2, "tasks": 2}, placement={"sites": [SITE]})
    reported = eventually(lambda: server.status("wide").get("message"))
    assert SITE in reported
    server.patch("wide", intent="Cancel")


@pytest.mark.parametrize("point", ["submit:created", "settle:written", "finish:collected"])
def test_the_control_plane_is_killed(point: str, lab: KubernetesLab, tmp_path: Path) -> None:
    """At any step: started again it goes on, and the job was run once."""
    server = ServerProcess(tmp_path / "data")
    server.start()
    try:
        register(server, lab)
        server.stop()
        server.start(**{VARIABLE: point})
        wait_ready(server)
        server.submit("once", "sh", "-c", "echo once", placement={"sites": [SITE]})
        assert server.process is not None
        assert server.process.wait(60) == -9
        server.start()
        assert server.finished("once", timeout=90)["phase"] == "Succeeded"
        assert server.output("once") == "once\n"
        uid = server.job("once")["metadata"]["uid"]
        mine = [pod for pod in lab.asker.ask(PODS)["items"] if uid in pod["metadata"]["name"]]
        assert len(mine) == 1
    finally:
        server.stop()


def test_a_cluster_that_is_there_already(isthmus: CommandLine, server: ServerProcess, lab: KubernetesLab) -> None:
    words = ["lab", "up", "--kubernetes", "--kubeconfig", str(lab.place.site_kubeconfig), "--name", "ours"]
    assert "--image" in isthmus(*words).stderr
    done = isthmus(*words, "--image", IMAGE)
    assert done.returncode == 0, done.stderr
    eventually(lambda: server.request("/apis/isthmus.dev/v1/sites/ours")["status"].get("phase") == "Ready")
    assert isthmus("run", "--site", "ours", "--no-files", "--", "echo", "there").stdout == "there\n"
