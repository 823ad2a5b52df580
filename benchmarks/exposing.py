"""Slurm nodes seen in Kubernetes: what it costs to keep them there.

A whole control plane with its store, and one site whose inventory is made up, against the API server and controllers of
a real Kubernetes with its ordinary grace period. Nothing happens meanwhile: that is what goes on day and night.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from isthmus.config import ServerSettings
from isthmus.engines.base import Engine, Inventory
from isthmus.lab import processes
from isthmus.lab.kubernetes.control_plane import LabControlPlane as Servers
from isthmus.lab.kubernetes.lab_client import LabClient
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.kinds import DEVICE_CLASS, SITE
from isthmus.resources.sites import Site, SiteNode
from isthmus.server.drivers import Drivers
from isthmus.testing.engines import until
from isthmus.testing.fake_engine import FakeEngine, FakeMachine
from isthmus.testing.kubernetes import running_api_server

from .planes import running_plane
from .report import Figure, Section
from .servers import cpu_seconds

SIZES = (100, 300)
LEAST_SECONDS = 60
NODES = "/api/v1/nodes?labelSelector=isthmus.dev%2Fsite"


def run(seconds: int) -> Section:
    section = Section(
        "Slurm nodes seen in Kubernetes",
        "A control plane that shows the nodes of one site (`exposeNodes`) in a Kubernetes 1.20, in the steady state: "
        "the inventory every 30 s, a comparison with what the cluster shows, a heartbeat of each node every 15 s. "
        "Processor time of the control plane as a whole, store included; beside it that of the API server. The "
        "inventory is made up: what it costs to ask Slurm is not in it.",
    )
    with running_api_server() as servers:
        servers.start_controllers(grace_seconds=40)
        for size in SIZES:
            with tempfile.TemporaryDirectory() as folder:
                ours, theirs, lost = asyncio.run(_measure(servers, Path(folder), size, max(LEAST_SECONDS, seconds)))
            reported = f"{ours:.2f} % of a core (the API server: {theirs:.1f} %); {lost} nodes seemed lost meanwhile"
            target = "below 5 %" if size == max(SIZES) else ""
            section.add(Figure(f"{size} nodes: cpu of the operator", reported, target=target))
            section.figures[-1].met = ours < 5 if target else None
    return section


class _Inventory(FakeEngine):
    """An engine with many nodes, each with four GPUs of a known class and something that no class names."""

    def __init__(self, count: int) -> None:
        super().__init__(FakeMachine())
        self._nodes = tuple(
            SiteNode(
                name=f"bench{number:03}", cpus=128, memory_bytes=2**39, devices={"a100": 4}, states=["IDLE"],
                features=["rack7", "ib"], queues=["all", "short"], gres={"gpu:a100": 4, "fpga:u250": 1},
            )
            for number in range(count)
        )  # fmt: skip

    async def probe(self, classes: Sequence[DeviceClass]) -> Inventory:
        return Inventory(version="Slurm 22.05.8", nodes=self._nodes)


async def _measure(servers: Servers, folder: Path, count: int, seconds: int) -> tuple[float, float, int]:
    async def make_engine(site: Site) -> Engine:
        return _Inventory(count)

    site = {"driver": "slurm", "slurm": {"folder": "/x"}, "exposeNodes": True}
    site |= {"kubernetes": {"kubeconfig": str(servers.kubeconfig)}}
    objects = {
        (DEVICE_CLASS, "a100"): {"slurm": {"gres": "gpu:a100"}, "kubernetes": {"resource": "nvidia.com/gpu"}},
        (SITE, f"bench{count}"): site,
    }
    expose = Drivers(ServerSettings(data=folder)).expose
    asker = LabClient(servers.url, servers.place.keys)
    async with running_plane(folder, make_engine, objects, make_exposure=expose):
        await until(lambda: _shown(asker, count), "all nodes", 300)
        await asyncio.sleep(20)  # until renewals have found their turns
        before = await _ready_since(asker)
        begun, used, theirs = time.monotonic(), time.process_time(), _cpu_of(servers)
        await asyncio.sleep(seconds)
        took = time.monotonic() - begun
        ours, theirs = (time.process_time() - used) / took, (_cpu_of(servers) - theirs) / took
        after = await _ready_since(asker)
    for node in (await asyncio.to_thread(asker.ask, NODES))["items"]:
        await asyncio.to_thread(asker.ask, f"/api/v1/nodes/{node['metadata']['name']}", method="DELETE")
    return 100 * ours, 100 * theirs, sum(after.get(name) != since for name, since in before.items())


async def _shown(asker: LabClient, count: int) -> bool:
    found = (await asyncio.to_thread(asker.ask, NODES))["items"]
    await asyncio.sleep(1)
    return len(found) == count


async def _ready_since(asker: LabClient) -> dict[str, str]:
    """Each node, and since when it is as it is."""
    found = (await asyncio.to_thread(asker.ask, NODES))["items"]
    return {node["metadata"]["name"]: node["status"]["conditions"][0]["lastTransitionTime"] for node in found}


def _cpu_of(servers: Servers) -> float:
    """Seconds of processor time that the API server has used."""
    pid = processes.pid_of(servers.place, "kube-apiserver")
    assert pid is not None
    return cpu_seconds(pid)
