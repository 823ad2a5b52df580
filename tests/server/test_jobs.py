"""Jobs through a whole control plane: real store, real processes."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path

import pytest

from isthmus.testing.servers import ServerProcess, eventually

pytestmark = pytest.mark.real


def test_a_job_runs_and_tells_everything(server: ServerProcess) -> None:
    server.submit("plain", script="echo out; echo err >&2; exit 3")
    status = server.finished("plain")
    assert (status["phase"], status["exitCode"], status["reason"], status["site"]) == (
        "Failed",
        3,
        "NonZeroExit",
        "local",
    )
    assert server.output("plain") == "out\nerr\n"
    assert status["usage"]["elapsedSeconds"] > 0
    assert status["usage"]["energySource"] in ("estimated", "rapl")
    assert status["engineId"]


def test_streams_can_be_kept_apart(server: ServerProcess) -> None:
    server.submit("apart", script="echo out; echo err >&2", streams="Separate")
    server.finished("apart")
    assert server.output("apart") == "out\n"
    assert server.output("apart", query="?stream=stderr") == "err\n"


def test_a_signal_is_named(server: ServerProcess) -> None:
    server.submit("segv", script="kill -SEGV $$")
    status = server.finished("segv")
    assert (status["phase"], status["signal"]) == ("Failed", "SIGSEGV")


def test_a_program_that_does_not_exist_says_so(server: ServerProcess) -> None:
    server.submit("nowhere", "/no/such/program", retries={"limit": 3})
    status = server.finished("nowhere")
    assert (status["phase"], status["attempt"]) == ("Failed", 0)
    assert "/no/such/program" in status["message"]


def test_the_time_limit_holds(server: ServerProcess) -> None:
    server.submit("slow", "sleep", "600", resources={"timeLimit": "1s"})
    status = server.finished("slow")
    assert (status["phase"], status["reason"]) == ("Failed", "TimeLimit")


def test_cancel_ends_the_whole_tree(server: ServerProcess) -> None:
    server.submit("tree", script="(setsid sleep 987 &) ; sleep 987 & wait")
    eventually(lambda: server.status("tree")["phase"] == "Running")
    server.patch("tree", intent="Cancel")
    assert server.finished("tree")["phase"] == "Cancelled"
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x00987" in _read(p)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_held_job_waits_until_it_is_released(server: ServerProcess) -> None:
    server.submit("held", intent="Hold")
    eventually(lambda: server.status("held").get("reason") == "Held")
    server.patch("held", intent="Run")
    assert server.finished("held")["phase"] == "Succeeded"


def test_a_waiting_job_can_be_cancelled(server: ServerProcess) -> None:
    server.submit("never", intent="Hold")
    server.patch("never", intent="Cancel")
    status = server.finished("never")
    assert (status["phase"], status.get("site")) == ("Cancelled", None)


def test_retries_until_it_works(server: ServerProcess) -> None:
    server.submit("flaky", script='[ "$ISTHMUS_ATTEMPT" = 2 ]', retries={"limit": 5, "backoff": "50ms"})
    status = server.finished("flaky")
    assert (status["phase"], status["attempt"]) == ("Succeeded", 2)
    assert [t["exitCode"] for t in status["tries"]] == [1, 1]


def test_dependencies_in_order(server: ServerProcess) -> None:
    server.submit("third", dependencies=[{"job": "second", "condition": "Finished"}])
    server.submit("second", "false", dependencies=[{"job": "first"}])
    server.submit("spare", dependencies=[{"job": "second", "condition": "Failed"}])
    server.submit("hopeless", dependencies=[{"job": "second"}])
    eventually(lambda: "does not exist yet" in server.status("second").get("message", ""))
    server.submit("first")
    assert server.finished("first")["phase"] == "Succeeded"
    assert server.finished("second")["phase"] == "Failed"
    assert server.finished("third")["phase"] == "Succeeded"
    assert server.finished("spare")["phase"] == "Succeeded"
    hopeless = server.finished("hopeless")
    assert (hopeless["phase"], hopeless["reason"]) == ("Cancelled", "DependencyFailed")


def test_an_array_runs_every_index_once(server: ServerProcess) -> None:
    server.submit(
        "many", script="echo $ISTHMUS_ARRAY_INDEX", array={"indices": "1-9:2", "limit": 2}, resources={"cpus": "0.5"}
    )
    status = server.finished("many")
    assert status["phase"] == "Succeeded"
    assert status["array"] == {"total": 5, "created": 5, "active": 0, "succeeded": 5, "failed": 0, "cancelled": 0}
    assert [server.output(f"many-{n}").strip() for n in (1, 3, 5, 7, 9)] == ["1", "3", "5", "7", "9"]


def test_an_array_with_a_failure_fails_and_one_that_is_cancelled_stops(server: ServerProcess) -> None:
    server.submit("some", script="[ $ISTHMUS_ARRAY_INDEX != 2 ]", array={"indices": "0-3"}, resources={"cpus": "0.5"})
    status = server.finished("some")
    assert (status["phase"], status["array"]["failed"]) == ("Failed", 1)
    server.submit("long", "sleep", "600", array={"indices": "0-99", "limit": 3}, resources={"cpus": "0.1"})
    eventually(lambda: server.status("long").get("array", {}).get("active") == 3)
    server.patch("long", intent="Cancel")
    status = server.finished("long")
    assert (status["phase"], status["array"]["active"]) == ("Cancelled", 0)


def test_deleting_an_array_deletes_its_elements_and_ends_their_runs(server: ServerProcess) -> None:
    server.submit("gone", "sleep", "654", array={"indices": "0-1"}, resources={"cpus": "0.1"})
    eventually(lambda: all(_phase(server, f"gone-{n}") == "Running" for n in (0, 1)))
    server.request(f"{server.jobs()}/gone", method="DELETE")
    eventually(
        lambda: not [j for j in server.request(server.jobs())["items"] if j["metadata"]["name"].startswith("gone")]
    )
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x00654" in _read(p)]


def _phase(server: ServerProcess, name: str) -> str | None:
    try:
        return str(server.status(name)["phase"])
    except urllib.error.HTTPError:
        return None


def test_capacity_is_respected_and_priority_goes_first(server: ServerProcess) -> None:
    cpus = server.request("/apis/isthmus.dev/v1/sites/local")["status"]["capacity"]["cpus"]
    server.submit(
        "whole", script="while [ ! -e go ]; do sleep 0.05; done", resources={"cpus": cpus, "timeLimit": "60s"}
    )
    eventually(lambda: server.status("whole")["phase"] == "Running")
    for name, priority in (("low", 0), ("high", 5)):
        server.submit(name, script="date +%s%N", priority=priority, resources={"cpus": cpus})
    eventually(lambda: server.status("low").get("reason") == "InsufficientRoom")
    server.patch("whole", intent="Cancel")
    assert server.finished("low")["phase"] == server.finished("high")["phase"] == "Succeeded"
    assert int(server.output("high")) < int(server.output("low"))


def test_when_no_site_fits_the_status_says_what_failed_where(server: ServerProcess) -> None:
    server.submit("nofit", placement={"expression": "location == IT and price < 2"}, resources={"cpus": 1})
    status = eventually(lambda: (s := server.status("nofit")).get("message") and s)
    assert status["reason"] == "NoSiteFits"
    assert "local: it has no label location, wanted location == IT" in status["message"]
    meta = {"labels": {"location": "IT", "price": "1.5"}}
    server.request("/apis/isthmus.dev/v1/sites/local", {"metadata": meta}, method="PATCH")
    assert server.finished("nofit")["phase"] == "Succeeded"


def test_too_large_and_unknown_devices_are_explained(server: ServerProcess) -> None:
    server.submit("huge", resources={"cpus": 4000, "devices": [{"class": "akida"}]})
    status = eventually(lambda: (s := server.status("huge")).get("message") and s)
    assert "the job asks for 4k" in status["message"] or "the job asks for 4000" in status["message"]
    assert "it has no akida" in status["message"]


def test_a_second_site_takes_work_and_leaves_only_when_it_is_idle(server: ServerProcess) -> None:
    site = {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Site",
        "metadata": {"name": "corner"},
        "spec": {"driver": "local", "local": {"cpus": 1}},
    }
    server.request("/apis/isthmus.dev/v1/sites", site)
    server.submit("there", "sleep", "1", placement={"sites": ["corner"]})
    eventually(lambda: server.status("there")["phase"] == "Running")
    server.request("/apis/isthmus.dev/v1/sites/corner", method="DELETE")
    assert server.finished("there")["phase"] == "Succeeded"
    sites = "/apis/isthmus.dev/v1/sites"
    eventually(lambda: "corner" not in [site["metadata"]["name"] for site in server.request(sites)["items"]])


def test_a_driver_nobody_has_makes_the_site_unreachable_and_says_why(server: ServerProcess) -> None:
    site = {"apiVersion": "isthmus.dev/v1", "kind": "Site", "metadata": {"name": "odd"}, "spec": {"driver": "abacus"}}
    server.request("/apis/isthmus.dev/v1/sites", site)
    status = eventually(lambda: (s := server.request("/apis/isthmus.dev/v1/sites/odd")["status"]).get("message") and s)
    assert status["phase"] == "Unreachable"
    assert "abacus" in status["message"]
    server.request("/apis/isthmus.dev/v1/sites/odd", method="DELETE")


def test_tenants_run_under_accounts_of_their_own_and_see_nothing_of_each_other(server: ServerProcess) -> None:
    for name in ("red", "blue"):
        tenant = {"apiVersion": "isthmus.dev/v1", "kind": "Tenant", "metadata": {"name": name}}
        server.request("/apis/isthmus.dev/v1/tenants", tenant)
    eventually(lambda: all(_uid(server, name) for name in ("red", "blue")))
    server.submit("secret", script="echo mine > file; sleep 3", namespace="red")
    eventually(lambda: server.status("secret", "red")["phase"] == "Running")
    look = f"id -u; cat {server.data}/admin.token; find {server.data} -name file 2>/dev/null | xargs -r cat"
    server.submit("spy", script=look, namespace="blue")
    server.finished("spy", "blue")
    seen = server.output("spy", "blue")
    assert str(_uid(server, "blue")) in seen
    assert "mine" not in seen
    assert "ist_" not in seen
    assert _uid(server, "red") != _uid(server, "blue")
    server.request("/apis/isthmus.dev/v1/tenants/red", method="DELETE")
    eventually(
        lambda: "red" not in [t["metadata"]["name"] for t in server.request("/apis/isthmus.dev/v1/tenants")["items"]]
    )


def _uid(server: ServerProcess, tenant: str) -> int | None:
    number: int | None = server.request(f"/apis/isthmus.dev/v1/tenants/{tenant}")["status"].get("uidNumber")
    return number


def test_outputs_come_back(server: ServerProcess) -> None:
    server.submit("maker", script="mkdir out; echo 42 > out/a.txt; echo no > b.log", outputs=["out/*.txt", "nothing*"])
    status = server.finished("maker")
    assert status["outputs"]["count"] == 1
    listing = server.request(f"{server.jobs()}/maker/outputs")
    assert [f["path"] for f in listing["files"]] == ["out/a.txt"]
    assert server.request(f"{server.jobs()}/maker/outputs/out/a.txt") == b"42\n"


def test_a_job_is_deleted_some_time_after_its_end(server: ServerProcess) -> None:
    server.submit("brief", ttlAfterFinished="200ms")
    eventually(lambda: _phase(server, "brief") is None)


def test_a_missed_deadline_is_marked(server: ServerProcess) -> None:
    server.submit("late", "sleep", "1", deadline="2020-01-01T00:00:00Z")
    conditions = {c["type"] for c in server.finished("late")["conditions"]}
    assert "DeadlineMissed" in conditions


def test_events_tell_the_story(server: ServerProcess) -> None:
    server.submit("story", "false")
    server.finished("story")

    def reasons() -> set[str]:
        items = server.request("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=story")["items"]
        return {item["reason"] for item in items}

    eventually(lambda: {"Placed", "NonZeroExit"} <= reasons())


def test_output_that_is_not_text_comes_through_unchanged(server: ServerProcess) -> None:
    server.submit("bytes", script=r"printf '\377\000\376'")
    server.finished("bytes")
    assert server.request(f"{server.jobs()}/bytes/log") == b"\xff\x00\xfe"


def test_bad_input_changes_nothing(server: ServerProcess) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.submit("bad", resources={"cpus": "many"})
    reported = json.loads(caught.value.read())
    assert reported["reason"] == "Invalid"
    assert reported["details"]["causes"][0]["field"] == "spec.resources.cpus"
    assert _phase(server, "bad") is None
