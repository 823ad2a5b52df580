"""`kill -9` at any moment never loses a job and never runs one twice."""

from __future__ import annotations

import random
import time
import urllib.error

import pytest

from isthmus.testing.servers import ServerProcess, eventually

pytestmark = pytest.mark.real

POINTS = (
    "update.Job.Placed:before",
    "update.Job.Placed:after",
    "submit:before",
    "submit:after",
    "update.Job.Finishing:before",
    "update.Job.Finishing:after",
    "finish:collected",
    "update.Job.Succeeded:before",
    "update.Job.Succeeded:after",
)


def runs(server: ServerProcess, name: str) -> int:
    """How often the job's script ran: each run appends a line to its log."""
    return server.output(name).count("ran\n")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_step_the_job_still_runs_exactly_once(own_server: ServerProcess, point: str) -> None:
    own_server.start(ISTHMUS_CRASH_AT=point)
    try:
        own_server.submit("job", script="echo ran; echo 1 > kept", outputs=["kept"])
    except (urllib.error.URLError, ConnectionError):
        pytest.fail("the job was not accepted")
    process = own_server.process
    assert process is not None
    assert process.wait(60) == -9, "the crash point was not reached"
    own_server.start()
    status = own_server.finished("job")
    assert status["phase"] == "Succeeded"
    assert (status["attempt"], status["outputs"]["count"]) == (0, 1)
    assert runs(own_server, "job") == 1


def test_jobs_outlive_the_control_plane_and_their_true_end_is_found(own_server: ServerProcess) -> None:
    own_server.start()
    own_server.submit("ends-meanwhile", script="echo ran; sleep 1; exit 7")
    own_server.submit("goes-on", script="echo ran; sleep 4; echo still here")
    eventually(lambda: all(own_server.status(n)["phase"] == "Running" for n in ("ends-meanwhile", "goes-on")))
    own_server.kill()
    time.sleep(1.5)
    own_server.start()
    assert own_server.status("goes-on")["phase"] == "Running"
    assert own_server.finished("ends-meanwhile")["exitCode"] == 7
    assert own_server.output("goes-on", query="?follow=true") == "ran\nstill here\n"
    assert own_server.finished("goes-on")["phase"] == "Succeeded"


def test_killed_at_random_moments_under_load_nothing_is_lost_and_nothing_runs_twice(own_server: ServerProcess) -> None:
    own_server.start()
    accepted: list[str] = []
    chance = random.Random(7)
    for number in range(60):
        name = f"job-{number}"
        try:
            own_server.submit(name, script="echo ran", resources={"cpus": "0.2"})
            accepted.append(name)
        except (urllib.error.URLError, ConnectionError, OSError):
            pass
        if number % 12 == 5:
            time.sleep(chance.random() * 0.3)
            own_server.kill()
            own_server.start()
    for name in accepted:
        assert own_server.finished(name)["phase"] == "Succeeded", name
        assert runs(own_server, name) == 1, name
    assert len(accepted) == 60


def test_a_running_job_can_be_cancelled_after_a_restart(own_server: ServerProcess) -> None:
    own_server.start()
    own_server.submit("long", "sleep", "600")
    eventually(lambda: own_server.status("long")["phase"] == "Running")
    own_server.kill()
    own_server.start()
    own_server.patch("long", intent="Cancel")
    assert own_server.finished("long")["phase"] == "Cancelled"
