"""The lab runs real jobs, breaks as told, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.errors import Invalid, Misconfigured
from isthmus.lab import numbers, processes
from isthmus.lab.slurm import packages
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings, NodeSpec, SlurmLabPlace
from isthmus.testing.servers import eventually

pytestmark = pytest.mark.real


def submit(lab: SlurmLab, *words: str, user: str = "nobody") -> str:
    """A job of an ordinary user; its id."""
    command = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups", "sbatch", "--parsable"]
    return processes.call(
        lab.place, *command, f"--chdir={lab.place.shared}", "--output=/dev/null", *words
    ).stdout.strip()


def state(lab: SlurmLab, job: str) -> str:
    return lab.call("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def wait_state(lab: SlurmLab, job: str, *wanted: str) -> str:
    return eventually(lambda: found if (found := state(lab, job)) in wanted else None, timeout=60)


def traces(lab: SlurmLab) -> list[str]:
    """Everything that a lab could leave on the machine."""
    place = lab.place
    left = [f"process {pid}" for pid in processes.all_of(place)]
    left += [f"link {name}" for name in os.listdir("/sys/class/net") if name.split(".")[0] == place.bridge]
    left += [f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if str(place.root) in line]
    left += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"*/slurm_lab{place.number}n*")]
    return left


def test_up_runs_jobs_and_down_leaves_nothing(folder: Path) -> None:
    lab = SlurmLab(folder)
    lab.up(2)
    before = lab.status()
    lab.up(2)
    assert lab.status() == before, "up again changes nothing"
    first, second = (lab.place.node_name(n) for n in (1, 2))
    assert before.nodes == {first: "idle", second: "idle"}
    board = submit(lab, "--gres=board:akida:1", "--wrap", "hostname")
    gpu = submit(lab, "--gres=gpu:a100:1", "--wrap", "test $CUDA_VISIBLE_DEVICES = 0")
    assert wait_state(lab, board, "COMPLETED", "FAILED") == "COMPLETED"
    assert wait_state(lab, gpu, "COMPLETED", "FAILED") == "COMPLETED"
    assert lab.call("squeue", "-h", "-t", "all", "-j", board, "-o", "%N").strip() == first
    lasting = submit(lab, "--wrap", "sleep 1000")
    wait_state(lab, lasting, "RUNNING")
    lab.down()
    assert traces(lab) == []
    assert numbers.free_number(folder, lambda n: SlurmLabPlace(folder, n)) != lab.place.number, (
        "the number stays its own"
    )
    lab.up(2)
    assert state(lab, board) == "COMPLETED", "the next up goes on with the same state"
    lab.down(erase=True)
    assert traces(SlurmLab(folder)) == []
    assert not folder.exists()


def test_nodes_come_crash_and_go(folder: Path) -> None:
    lab = SlurmLab(folder)
    lab.up(1)
    name = lab.place.node_name(9)
    spec = NodeSpec(name, cpus=4, features=("board", "odd"), gres=("board:akida:2",))
    lab.add(spec)
    job = submit(lab, "--no-requeue", "-C", "odd", "--wrap", "sleep 1000")
    wait_state(lab, job, "RUNNING")
    lab.node(name).crash()
    assert lab.node(name).processes() == []
    lab.add(spec)  # back again: its jobs are known to be lost
    assert wait_state(lab, job, "NODE_FAIL", "RUNNING") == "NODE_FAIL"
    lab.remove(name)
    assert name not in lab.status().nodes
    assert not lab.place.node(name).exists()


def test_the_controller_is_killed_and_comes_back(folder: Path) -> None:
    lab = SlurmLab(folder)
    lab.up(1)
    job = submit(lab, "--wrap", "sleep 1000")
    wait_state(lab, job, "RUNNING")
    lab.stop_controller()
    assert processes.call(lab.place, "squeue", check=False, seconds=90).returncode != 0
    lab.start_controller()
    assert wait_state(lab, job, "RUNNING") == "RUNNING"


def test_two_labs_side_by_side_one_with_accounts_and_energy(folder: Path) -> None:
    plain, other = SlurmLab(folder / "a"), SlurmLab(folder / "b")
    try:
        plain.up(1)
        other.up(1, LabSettings(accounting=True, energy=True))
        assert plain.place.number != other.place.number
        node = other.node(other.place.node_name(1))
        node.meter(100, 10)
        signs = other.place.shared / "signs"
        signs.mkdir()
        signs.chmod(0o777)
        # Counters are read once a second: the job gives the lab time to read before and after the change.
        job = submit(
            other, "--wrap", f"sleep 3; touch {signs}/begun; until test -e {signs}/go; do sleep 0.1; done; sleep 3"
        )
        eventually((signs / "begun").exists, timeout=60)
        node.meter(400, 10)
        (signs / "go").touch()
        wait_state(other, job, "COMPLETED")

        def energy() -> str | None:
            said = other.call("sacct", "-n", "-P", "-j", job, "--format=ConsumedEnergyRaw,State").splitlines()
            return next((line for line in said if line.startswith("300|")), None)

        assert eventually(energy, timeout=30)
        assert submit(plain, "--wrap", "true") == "1", "the other lab's jobs are not counted here"
    finally:
        plain.down(erase=True)
        other.down(erase=True)
    assert traces(plain) == []
    assert traces(other) == []


def test_other_settings_are_refused_and_named(folder: Path) -> None:
    lab = SlurmLab(folder)
    lab.up(0)
    with pytest.raises(Invalid, match="down --erase"):
        lab.up(0, LabSettings(energy=True))


def test_what_is_missing_is_named_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_PATH", "/nowhere")
    with pytest.raises(Misconfigured, match=r"apt install --no-install-recommends slurmctld slurmd slurm-client"):
        packages.check(LabSettings())


def test_a_closed_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    short = next(parent for parent in tmp_path.parents if len(str(parent)) < 40)
    closed = short / f"isl-closed-{os.getpid()}"
    closed.mkdir(mode=0o700)
    try:
        with pytest.raises(Misconfigured, match=r"is closed to others"):
            SlurmLab(closed / "lab").up(0)
    finally:
        (closed / "lab").rmdir()
        closed.rmdir()


@pytest.fixture
def isthmus() -> Callable[..., subprocess.CompletedProcess[str]]:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "isthmus.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    return call


def test_the_command_line(folder: Path, isthmus: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    data = str(folder)
    assert "no Slurm runs" in isthmus("lab", "status", "--data", data).stdout
    done = isthmus("lab", "up", "--data", data)
    assert done.returncode == 2
    assert "--slurm" in done.stderr
    folder.mkdir()
    folder.chmod(0o711)
    # No server: one that runs on this machine is not the tests' to change.
    done = isthmus("lab", "up", "--slurm", "1", "--data", data, "--url", "http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    assert "export SLURM_CONF=" in done.stdout
    assert "not registered" in done.stderr
    found = json.loads(isthmus("lab", "status", "--data", data, "-o", "json").stdout)
    assert found["running"] is True
    assert list(found["nodes"].values()) == ["idle"]
    # In a shell that uses the lab, below another program and beside one: none is one of the lab's processes.
    down = ["timeout", "100", sys.executable, "-m", "isthmus.cli", "lab", "down", "--erase", "--data", data]
    env = {**os.environ, "SLURM_CONF": f"{data}/slurm/slurm.conf"}
    with subprocess.Popen(["cat"], env=env, stdin=subprocess.PIPE) as beside:
        assert subprocess.run(down, env=env, check=False).returncode == 0
        assert beside.poll() is None, "a program of somebody who uses the lab"
    assert "no Slurm runs" in isthmus("lab", "status", "--data", data).stdout
