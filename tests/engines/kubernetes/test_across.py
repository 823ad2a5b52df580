"""Work that crosses sites: from Slurm to Kubernetes to this machine, arrays over all of them, and a free choice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.lab.kubernetes.registering import manifests as kubernetes_manifests
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.registering import manifests as slurm_manifests
from isthmus.testing.servers import GROUP, ServerProcess, eventually, running_server
from isthmus.testing.slurm import running_slurm

pytestmark = [pytest.mark.real, pytest.mark.kubernetes]
PATIENCE = 120
SLURM, KUBERNETES = "hpc", "cloud"


@pytest.fixture(scope="module")
def slurm_lab() -> Iterator[SlurmLab]:
    """One node of two cpus."""
    with running_slurm(1) as made:
        yield made


@pytest.fixture(scope="module")
def server(
    lab: KubernetesLab, slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A platform with a site of each kind."""
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        classes: set[str] = set()
        for obj in [
            *slurm_manifests(slurm_lab.place, SLURM),
            *kubernetes_manifests(lab.place.site_kubeconfig, KUBERNETES),
        ]:
            if obj["kind"] == "Site":
                obj["spec"]["probeInterval"] = "1s"
                if obj["spec"]["driver"] == "slurm":
                    obj["spec"]["slurm"]["pollInterval"] = "250ms"
                running.request(f"{GROUP}/sites", obj)
            elif obj["metadata"]["name"] not in classes:
                classes.add(obj["metadata"]["name"])
                running.request(f"{GROUP}/deviceclasses", obj)
        for name in (SLURM, KUBERNETES, "local"):
            eventually(lambda name=name: site(running, name).get("phase") == "Ready", timeout=PATIENCE)
        yield running


def site(server: ServerProcess, name: str) -> dict[str, Any]:
    status: dict[str, Any] = server.request(f"{GROUP}/sites/{name}")["status"]
    return status


@pytest.fixture
def isthmus(server: ServerProcess, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
        return subprocess.run(
            [sys.executable, "-m", "isthmus.cli", *words], env=env, cwd=tmp_path, capture_output=True, text=True,
            timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return call


def at(*sites: str) -> dict[str, list[str]]:
    return {"sites": list(sites)}


def test_a_slurm_job_then_a_kubernetes_job_then_a_local_one(server: ServerProcess) -> None:
    """Each uses what the one before it left; submitted in the wrong order, all at once."""
    last = "cat data/two.txt; cat one.txt 2>/dev/null; true"
    two = [{"job": "two", "outputsInto": "data"}]
    server.submit("three", "sh", "-c", last, placement=at("local"), dependencies=two)
    one = [{"job": "one", "outputsInto": "."}]
    middle = "sed s/one/two/ one.txt > two.txt"
    server.submit("two", "sh", "-c", middle, placement=at(KUBERNETES), dependencies=one, outputs=["two.txt"])
    server.submit("one", "sh", "-c", "echo one > one.txt", placement=at(SLURM), outputs=["*.txt"])
    assert server.finished("three", timeout=PATIENCE)["phase"] == "Succeeded"
    assert server.output("three") == "two\n"
    assert [server.status(name)["site"] for name in ("one", "two", "three")] == [SLURM, KUBERNETES, "local"]
    left, taken = server.status("one")["outputs"], server.status("two")["dependencies"]
    assert taken[0]["tree"] == left["tree"]


def test_an_array_over_sites(server: ServerProcess) -> None:
    script = "#!/bin/sh\ncp seed.txt $ISTHMUS_ARRAY_INDEX.txt\n"
    server.submit("seed", "sh", "-c", "echo seed > seed.txt", placement=at(SLURM), outputs=["seed.txt"])
    every = at(SLURM, KUBERNETES, "local")
    taken = [{"job": "seed", "outputsInto": "."}]
    server.submit(
        "spread", script=script, array={"indices": "0-5"}, placement=every, dependencies=taken, outputs=["[0-9].txt"],
    )  # fmt: skip
    gathered = [{"job": "spread", "outputsInto": "all"}]
    server.submit("gather", "sh", "-c", "cat all/*/*.txt | wc -l", placement=at(KUBERNETES), dependencies=gathered)
    assert server.finished("spread", timeout=PATIENCE)["array"]["succeeded"] == 6
    sites = {server.status(f"spread-{index}")["site"] for index in range(6)}
    assert len(sites) >= 2, sites
    assert server.finished("gather", timeout=PATIENCE)["phase"] == "Succeeded"
    assert server.output("gather").strip() == "6"


def test_any_site_when_slurm_is_full(
    server: ServerProcess, slurm_lab: SlurmLab, isthmus: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Full of work of others: somebody who knows nothing of Isthmus."""
    server.request(f"{GROUP}/sites/local", {"spec": {"enabled": False}}, method="PATCH")
    cpus = int(site(server, SLURM)["capacity"]["cpus"])
    env = {**os.environ, "SLURM_CONF": str(slurm_lab.place.conf)}
    words = ["sbatch", "--parsable", f"-n{cpus}", "-o/dev/null", "-D/", "--wrap=sleep 1000"]
    number = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    try:
        eventually(lambda: (site(server, SLURM).get("others") or {}).get("cpus") == cpus, timeout=PATIENCE)
        done = isthmus("run", "--site", "any", "--no-files", "--name", "free", "--", "echo", "there")
        assert (done.returncode, done.stdout) == (0, "there\n"), done.stderr
        status = server.status("free")
        assert status["site"] == KUBERNETES
        why = f"{SLURM}: 0 of {cpus} CPUs free ({cpus} taken by work that is not ours)"
        assert why in status["siteMessage"]
        assert f"job free goes to {KUBERNETES}: " in done.stderr
        assert why in done.stderr
        assert why in isthmus("job", "free").stdout
    finally:
        subprocess.run(["scancel", number], env=env, check=True, timeout=60)
        server.request(f"{GROUP}/sites/local", {"spec": {"enabled": True}}, method="PATCH")
    eventually(lambda: (site(server, SLURM).get("others") or {}).get("cpus") == 0, timeout=PATIENCE)


def test_any_site_when_kubernetes_is_full(
    server: ServerProcess, isthmus: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Full of work of our own."""
    server.request(f"{GROUP}/sites/local", {"spec": {"enabled": False}}, method="PATCH")
    seen = site(server, KUBERNETES)
    nodes = [node for node in seen["nodes"] if node["state"] == "Ready"]
    taken = (seen.get("others") or {}).get("cpus", 0)
    try:
        for number, node in enumerate(nodes):
            wanted = {"cpus": str(int((node["cpus"] - taken) * 1000) - 100) + "m"}
            server.submit(f"fill-{number}", "sleep", "1000", placement=at(KUBERNETES), resources=wanted)
        for number in range(len(nodes)):
            eventually(lambda n=number: server.status(f"fill-{n}")["phase"] in ("Queued", "Running"), timeout=PATIENCE)
        done = isthmus("run", "--site", "any", "--no-files", "--name", "other", "--", "echo", "here")
        assert (done.returncode, done.stdout) == (0, "here\n"), done.stderr
        status = server.status("other")
        assert status["site"] == SLURM
        assert f"{KUBERNETES}: " in status["siteMessage"]
        assert " CPUs free" in status["siteMessage"].partition(KUBERNETES)[2]
        assert f"job other goes to {SLURM}: " in done.stderr
    finally:
        for number in range(len(nodes)):
            server.patch(f"fill-{number}", intent="Cancel")
        server.request(f"{GROUP}/sites/local", {"spec": {"enabled": True}}, method="PATCH")
    for number in range(len(nodes)):
        assert server.finished(f"fill-{number}", timeout=PATIENCE)["phase"] == "Cancelled"
