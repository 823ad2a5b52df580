"""A whole platform with a Slurm site: from the command line to the cluster and back."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus._kit.crashpoints import VARIABLE
from isthmus.engines.batch_scripts import number_of
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.registering import manifests
from isthmus.resources.tokens import new_secret
from isthmus.testing.browsers import chromium, signed_in
from isthmus.testing.servers import CommandLine, ServerProcess, eventually, running_server

pytestmark = pytest.mark.real


def register(server: ServerProcess, lab: SlurmLab, name: str) -> None:
    plurals = {"Site": "sites", "DeviceClass": "deviceclasses"}
    for obj in manifests(lab.place, name):
        if obj["kind"] == "Site":
            obj["spec"]["slurm"]["pollInterval"] = "250ms"
        server.request(f"/apis/isthmus.dev/v1/{plurals[obj['kind']]}", obj)
    eventually(lambda: server.request(f"/apis/isthmus.dev/v1/sites/{name}")["status"].get("phase") == "Ready")


@pytest.fixture(scope="module")
def server(lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("server") / "data") as running:
        register(running, lab, f"site-{os.getpid()}")
        yield running


@pytest.fixture
def site(server: ServerProcess) -> str:
    return f"site-{os.getpid()}"


@pytest.fixture
def isthmus(server: ServerProcess, tmp_path: Path) -> CommandLine:
    return server.command_line(tmp_path)


def test_run_on_a_board_with_files_and_outputs(
    isthmus: CommandLine, site: str, server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("seven\n")
    script = "cat in.txt; echo unit $ISTHMUS_UNITS_AKIDA; mkdir out; echo r > out/r.csv; echo bad >&2; exit 3"
    words = ["--site", site, "--device", "akida", "--name", "board", "--outputs", "out/*", "--", "sh", "-c", script]
    done = isthmus("run", *words)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "seven\nunit 0\n"
    assert "bad" in done.stderr
    assert (tmp_path / "out" / "r.csv").read_text() == "r\n"
    status = server.status("board")
    assert status["devices"] == {"akida": ["0"]}
    assert status["usage"]["energySource"] == "estimated"
    assert status["usage"]["elapsedSeconds"] > 0
    assert status["usage"]["peakMemoryBytes"] > 0


@pytest.mark.timeout(300)
def test_power_and_use_of_a_board_are_seen_while_it_runs(
    isthmus: CommandLine, site: str, server: ServerProcess, lab: SlurmLab
) -> None:
    """By a command on the node, in the terminal and in the console."""
    load = lab.place.shared / f"{site}-load"
    load.write_text("400\n")
    load.chmod(0o644)
    spec = {
        "slurm": {"gres": "board:akida"},
        "meter": {"source": "Command", "command": ["echo", "12.5"]},
        "use": {"source": "File", "path": str(load), "full": 1000},
    }
    board = {"kind": "DeviceClass", "metadata": {"name": "metered-board"}, "spec": spec}
    server.request("/apis/isthmus.dev/v1/deviceclasses", board)
    resources = {"devices": [{"class": "metered-board", "count": 1}]}
    server.submit("metered", "sleep", "600", resources=resources, placement={"sites": [site]})
    shown = eventually(lambda: _series(isthmus("top", "metered", "--once", "-o", "json").stdout), timeout=90)
    assert shown["power"]["source"] == "measured"
    assert shown["power"]["points"][-1][1] == pytest.approx(12.5, rel=0.05)
    assert shown["device"]["points"][-1][1] == 0.4
    words = isthmus("top", "metered", "--once").stdout
    assert re.search(r"power: .*1[23]", words, re.IGNORECASE), words
    with chromium() as browser:
        page = signed_in(browser, server.url, server.token)
        page.goto("/console/jobs/default/metered")
        plots = page.get_by_role("region", name="Metrics")
        plots.get_by_role("img", name="Power over time").wait_for()
        plots.get_by_text(re.compile(r"^12\.\d+ W$")).wait_for()
        plots.get_by_role("img", name="Device utilization over time").wait_for()
        page.context.close()
    server.patch("metered", intent="Cancel")
    assert server.finished("metered")["usage"]["energySource"] == "command"
    server.request("/apis/isthmus.dev/v1/deviceclasses/metered-board", method="DELETE")


def _series(text: str) -> dict[str, Any] | None:
    """What is measured, once there is power and use."""
    found = {series["name"]: series for series in json.loads(text or "{}").get("series") or ()}
    return found if {"power", "device"} <= found.keys() else None


def test_a_batch_script_is_honoured(isthmus: CommandLine, site: str, server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(
        "#!/bin/sh\n#SBATCH -J batched\n#SBATCH -p short -N 2 -n 2\n#SBATCH --mail-type=END\n"
        "#SBATCH --time=10\nsrun hostname | sort -u | wc -l\nscontrol -o show job $SLURM_JOB_ID\n"
    )
    done = isthmus("run", "--site", site, "--no-files", "job.sh")
    assert done.returncode == 0, done.stderr
    assert "--mail-type=END is not honoured" in done.stderr
    assert done.stdout.startswith("2\n")
    assert "Partition=short" in done.stdout
    assert "TimeLimit=00:10:00" in done.stdout


def test_options_for_slurm_keep_a_job_from_other_sites(server: ServerProcess, site: str) -> None:
    server.submit("elsewhere", slurm={"partition": "short"}, placement={"sites": ["local"]})
    reported = eventually(lambda: server.status("elsewhere").get("message"))
    assert "options for slurm" in reported
    server.patch("elsewhere", intent="Cancel")


def test_names_that_are_no_names_are_refused_at_the_door(server: ServerProcess) -> None:
    for wrong in ("short; rm -rf /", "$(id)", "a b", "--uid=0", "x\ny"):
        with pytest.raises(Exception, match="422"):
            server.submit("wrong", slurm={"partition": wrong})


def test_an_array_with_a_limit(server: ServerProcess, site: str) -> None:
    script = (
        "#!/bin/sh\necho $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT, $SLURM_ARRAY_TASK_MIN to "
        "$SLURM_ARRAY_TASK_MAX by $SLURM_ARRAY_TASK_STEP, $SLURM_ARRAY_JOB_ID; test $SLURM_ARRAY_TASK_ID != 2\n"
    )
    server.submit("swarm", script=script, array={"indices": "0-3", "limit": 2}, placement={"sites": [site]})
    status = server.finished("swarm")
    assert (status["phase"], status["array"]["succeeded"], status["array"]["failed"]) == ("Failed", 3, 1)
    assert server.status("swarm-2")["exitCode"] == 1
    number = number_of(server.job("swarm")["metadata"]["uid"])
    assert server.output("swarm-3") == f"3 of 4, 0 to 3 by 1, {number}\n"


def test_a_job_waits_for_another_in_slurms_own_queue(server: ServerProcess, site: str, lab: SlurmLab) -> None:
    at = {"sites": [site]}
    gate = "until test -e go; do sleep 0.1; done"
    server.submit("ahead", "sh", "-c", f"{gate}; exit 3", placement=at)
    eventually(lambda: server.status("ahead")["phase"] == "Running", timeout=60)
    server.submit("behind", "echo", "x", placement=at, dependencies=[{"job": "ahead"}])
    server.submit("anyway", "echo", "y", placement=at, dependencies=[{"job": "ahead", "condition": "Finished"}])
    for name in ("behind", "anyway"):
        eventually(lambda name=name: server.status(name)["phase"] == "Queued", timeout=60)
        assert server.status(name)["dependencies"][0]["satisfied"] is False
    number = server.status("anyway")["engineId"]
    assert f"afterany:{server.status('ahead')['engineId']}" in lab.call("squeue", "-h", "-j", number, "-o", "%E")
    uid = server.job("ahead")["metadata"]["uid"]
    next(lab.place.shared.glob(f"{site}/runs/{uid}.0/work")).joinpath("go").touch()
    status = server.finished("behind")
    assert (status["phase"], status["reason"]) == ("Cancelled", "DependencyFailed")
    assert server.finished("anyway")["phase"] == "Succeeded"
    assert not lab.call("squeue", "-h", "-t", "PD", "-o", "%A").split()


def test_a_queued_job_is_held_and_released(server: ServerProcess, site: str, lab: SlurmLab) -> None:
    lab.call("scontrol", "update", "partitionname=all", "state=down")
    try:
        server.submit("paused", "echo", "x", placement={"sites": [site]})
        eventually(lambda: server.status("paused")["phase"] == "Queued", timeout=60)
        server.patch("paused", intent="Hold")
        eventually(lambda: server.status("paused").get("reason") == "Held", timeout=60)
        assert "JobHeldUser" in lab.call("squeue", "-h", "-j", server.status("paused")["engineId"], "-o", "%r")
    finally:
        lab.call("scontrol", "update", "partitionname=all", "state=up")
    server.patch("paused", intent="Run")
    assert server.finished("paused")["phase"] == "Succeeded"


def test_cancel_and_retries(server: ServerProcess, site: str) -> None:
    at = {"sites": [site]}
    server.submit("stopped", "sh", "-c", "echo begun; exec sleep 1000", placement=at)
    eventually(lambda: server.status("stopped")["phase"] == "Running", timeout=60)
    server.patch("stopped", intent="Cancel")
    assert server.finished("stopped")["phase"] == "Cancelled"
    server.submit("again", "sh", "-c", "exit 1", placement=at, retries={"limit": 1, "backoff": "100ms"})
    status = server.finished("again")
    assert (status["phase"], status["attempt"]) == ("Failed", 1)
    assert len({status["engineId"], status["tries"][0]["engineId"]}) == 2


def test_a_deleted_job_leaves_nothing_on_the_cluster(server: ServerProcess, site: str, lab: SlurmLab) -> None:
    server.submit("gone", "echo", "x", placement={"sites": [site]})
    server.finished("gone")
    uid = server.job("gone")["metadata"]["uid"]
    assert list(lab.place.shared.glob(f"{site}/runs/{uid}.*"))
    server.request(f"{server.jobs()}/gone", method="DELETE")
    eventually(lambda: not list(lab.place.shared.glob(f"{site}/*/{uid}.*")))


def test_sites_are_shown_and_exported(isthmus: CommandLine, site: str, lab: SlurmLab) -> None:
    assert site in isthmus("sites").stdout
    found = json.loads(isthmus("sites", "export", site).stdout)
    assert found["ComputingManager"][0]["ProductName"] == "Slurm"
    assert {share["MappingQueue"] for share in found["ComputingShare"]} == {"all", "short", "boards", "gpus"}
    assert isthmus("sites", "a", "b").returncode == 2


@pytest.mark.parametrize(
    "point", ["SharedFiles._create_record:link", "send:submit", "submit:after", "finish:collected"]
)
def test_the_control_plane_is_killed(point: str, lab: SlurmLab, tmp_path: Path) -> None:
    """At any step: started again it goes on, and the job was run once."""
    server = ServerProcess(tmp_path / "data")
    name = re.sub(r"[^a-z]+", "-", f"crash-{point.lower()}") + f"-{os.getpid()}"
    server.start()
    try:
        register(server, lab, name)
        server.stop()
        server.start(**{VARIABLE: point})
        eventually(lambda: server.request(f"/apis/isthmus.dev/v1/sites/{name}")["status"].get("phase") == "Ready")
        server.submit("once", "sh", "-c", "echo once", placement={"sites": [name]})
        assert server.process is not None
        assert server.process.wait(60) == -9
        server.start()
        assert server.finished("once", timeout=90)["phase"] == "Succeeded"
        assert server.output("once") == "once\n"
        uid = server.job("once")["metadata"]["uid"]
        lines = lab.call("squeue", "-h", "-t", "all", "-o", "%A %k").splitlines()
        assert len([line for line in lines if f"isthmus:{uid}.0" in line]) == 1
    finally:
        server.stop()


def test_jobs_run_as_the_member_who_submitted_them(server: ServerProcess, lab: SlurmLab) -> None:
    """Two members of one tenant have two accounts; whoever has none, or is not known, is told so."""
    (site,) = (obj for obj in manifests(lab.place, "people") if obj["kind"] == "Site")
    site["spec"]["slurm"] |= {
        "pollInterval": "250ms",
        "accounts": [
            {"tenant": "people", "member": "ada@example.org", "user": "nobody"},
            {"tenant": "*", "member": "*@games.example", "user": "{member}"},
        ],
    }
    server.request("/apis/isthmus.dev/v1/sites", site)
    users = {"ada": "ada@example.org", "bob": "games@games.example", "eve": "eve@example.org"}
    members = [{"user": user, "role": "member"} for user in users.values()]
    server.request("/apis/isthmus.dev/v1/tenants", {"metadata": {"name": "people"}, "spec": {"members": members}})
    spec = {"command": ["sh", "-c", "echo $(id -un) $ISTHMUS_ARRAY_INDEX"], "placement": {"sites": ["people"]}}
    for name, user in users.items():
        array = {"array": {"indices": "7"}} if name == "bob" else {}
        sent = {"metadata": {"name": name}, "spec": {**spec, **array}}
        server.request(server.jobs("people"), sent, token=personal_token(server, user))
    server.submit("nobodys", *spec["command"], namespace="people", placement=spec["placement"])

    assert server.finished("ada", "people")["member"] == "ada@example.org"
    assert server.output("ada", "people") == "nobody\n"
    assert server.finished("bob", "people")["phase"] == "Succeeded"
    assert server.output("bob-7", "people") == "games 7\n"
    refused = server.finished("eve", "people")["message"]
    assert "eve@example.org of tenant people has no account on this cluster" in refused
    assert "not known which member of tenant people" in server.finished("nobodys", "people")["message"]


def personal_token(server: ServerProcess, user: str) -> str:
    name, secret, digest = new_secret()
    token = {"metadata": {"name": name}, "spec": {"user": user, "sha256": digest}}
    server.request("/apis/isthmus.dev/v1/namespaces/isthmus-system/tokens", token)
    return secret
