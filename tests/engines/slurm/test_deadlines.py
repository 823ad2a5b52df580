"""Jobs with deadlines on a real cluster with one board: the one that can wait is stopped, and goes on later."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from isthmus._kit.clock import timestamp, utcnow
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.testing.servers import COUNTING, ServerProcess, eventually, running_server

from .test_platform import register

pytestmark = pytest.mark.real
SITE = "deadlines"


@pytest.fixture(scope="module")
def server(lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("deadlines") / "data") as running:
        register(running, lab, SITE)
        yield running


def submit(server: ServerProcess, name: str, script: str, lasts: str, ahead: timedelta, **more: Any) -> None:
    server.submit(
        name,
        script=script,
        deadline=timestamp(utcnow() + ahead),
        profile=[{"class": "akida", "duration": lasts}],
        resources={"anyOf": [{"class": "akida"}]},
        placement={"sites": [SITE]},
        **more,
    )


def test_a_restartable_job_makes_room_and_goes_on_where_it_was(server: ServerProcess, lab: SlurmLab) -> None:
    keeps = {"keep": ["state/*"], "grace": "10s"}
    submit(server, "long", COUNTING, "10m", timedelta(hours=2), restartable=keeps)
    eventually(lambda: "from 0" in server.output("long"), timeout=90)
    submit(server, "pressed", "#!/bin/sh\necho ran\n", "20s", timedelta(seconds=90))
    assert server.finished("pressed", timeout=120)["phase"] == "Succeeded"
    assert server.output("pressed") == "ran\n"
    status = server.finished("long", timeout=120)
    assert (status["phase"], status["attempt"]) == ("Succeeded", 1)
    assert [past["reason"] for past in status["tries"]] == ["Preempted"]
    first, last = server.output("long", query="?attempt=1").splitlines()
    assert int(first.removeprefix("from ")) > 0
    assert last == "counted to 40"
    uid = server.job("long")["metadata"]["uid"]
    runs = [line for line in lab.call("squeue", "-h", "-t", "all", "-o", "%k").splitlines() if f":{uid}." in line]
    assert len(runs) == len(set(runs)) == 2
