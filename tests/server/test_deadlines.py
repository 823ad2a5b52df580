"""Jobs with deadlines on the real local engine: placed by price and deadline, stopped, and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from isthmus._kit.clock import timestamp, utcnow
from isthmus.testing.servers import COUNTING, GROUP, ServerProcess, eventually

pytestmark = pytest.mark.real

POINTS = ("stop:before", "stop:after", "preempt:before", "preempt:after", "finish:collected")


def prepare(server: ServerProcess) -> None:
    """Two kinds of boards, one of each on this machine."""
    for name, price in (("board", 2.0), ("card", 60.0)):
        body = {"kind": "DeviceClass", "metadata": {"name": name}, "spec": {"pricePerHour": price}}
        server.request(f"{GROUP}/deviceclasses", body)
    devices = [{"class": "board", "count": 1}, {"class": "card", "count": 1}]
    server.request(f"{GROUP}/sites/local", {"spec": {"devices": devices}}, method="PATCH")
    eventually(
        lambda: "card" in server.request(f"{GROUP}/sites/local")["status"].get("capacity", {}).get("devices", {})
    )


def due(**ahead: float) -> str:
    return timestamp(utcnow() + timedelta(**ahead))


def choice(*classes: str) -> dict[str, Any]:
    return {"cpus": "0.1", "anyOf": [{"class": name} for name in classes]}


def start_long(server: ServerProcess) -> None:
    """A restartable job on the only card, expected to take ten minutes."""
    server.submit(
        "long",
        script=COUNTING,
        deadline=due(hours=2),
        profile=[{"class": "card", "duration": "10m"}],
        resources=choice("card"),
        restartable={"checkpoint": ["state/*"], "grace": "10s"},
    )
    eventually(lambda: "from 0" in server.output("long"))


def start_pressed(server: ServerProcess) -> None:
    """A job that must have that card soon."""
    profile = [{"class": "card", "duration": "20s"}]
    server.submit("pressed", script="echo ran", deadline=due(seconds=60), profile=profile, resources=choice("card"))


def check_both(server: ServerProcess) -> None:
    """The pressed job ran once; the long one was stopped once, went on from where it was, and finished."""
    assert server.finished("pressed")["phase"] == "Succeeded"
    assert server.output("pressed") == "ran\n"
    status = server.finished("long")
    assert status["phase"] == "Succeeded"
    assert [past["reason"] for past in status["tries"]] == ["Preempted"]
    assert status["attempt"] == 1
    assert server.output("long", query="?attempt=0").splitlines()[0] == "from 0"
    first, last = server.output("long", query="?attempt=1").splitlines()
    assert int(first.removeprefix("from ")) > 0
    assert last == "counted to 40"


def test_price_and_deadline_choose_the_device_and_a_restartable_job_makes_room(own_server: ServerProcess) -> None:
    own_server.start()
    prepare(own_server)
    profile = [{"class": "board", "duration": "30m"}, {"class": "card", "duration": "5m"}]
    # Each its own command: what the first took would tell of the second.
    both: Callable[..., Any] = lambda name, **ahead: own_server.submit(  # noqa: E731
        name, command=["true", name], deadline=due(**ahead), profile=profile, resources=choice("board", "card")
    )
    both("calm", hours=3)
    both("hurried", minutes=10)
    calm, hurried = own_server.finished("calm"), own_server.finished("hurried")
    assert (calm["chosen"]["class"], calm["devices"]) == ("board", {"board": ["0"]})
    assert (hurried["chosen"]["class"], hurried["devices"]) == ("card", {"card": ["0"]})
    assert hurried["plan"]["alternatives"][0]["class"] == "board"
    assert hurried["plan"]["alternatives"][0]["meetsDeadline"] is False
    start_long(own_server)
    start_pressed(own_server)
    check_both(own_server)


@pytest.mark.parametrize("point", POINTS)
def test_killed_while_it_stops_a_job_nothing_is_lost_and_nothing_runs_twice(
    own_server: ServerProcess, point: str
) -> None:
    own_server.start(ISTHMUS_CRASH_AT=point)
    prepare(own_server)
    start_long(own_server)
    start_pressed(own_server)
    process = own_server.process
    assert process is not None
    assert process.wait(60) == -9, "the crash point was not reached"
    own_server.start()
    check_both(own_server)


def test_what_if_changes_nothing_and_tells_no_tenant_of_another(own_server: ServerProcess) -> None:
    own_server.start()
    prepare(own_server)
    start_long(own_server)
    plans = f"{GROUP}/namespaces/default/plans"
    profile = [{"class": "card", "duration": "20s"}]
    template = {"command": ["true"], "deadline": due(seconds=60), "profile": profile, "resources": choice("card")}
    asked = own_server.request(plans, {"spec": {"template": template}})["status"]
    assert asked["chosen"]["stopsOthers"] is True
    assert "long" not in str(asked)
    changed = own_server.request(plans, {"spec": {"job": "long", "deadline": due(seconds=5)}})["status"]
    assert changed["chosen"]["meetsDeadline"] is False
    assert own_server.status("long")["phase"] == "Running"
    assert "preemption" not in own_server.status("long")
    assert [job["metadata"]["name"] for job in own_server.request(own_server.jobs())["items"]] == ["long"]
