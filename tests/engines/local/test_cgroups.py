"""Cgroups: what is detected, what is planned, and (as root) that this machine's own enforce it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus.engines.base import Run
from isthmus.engines.local import cgroups
from isthmus.engines.local.cgroups import Cgroups, Group
from isthmus.testing.engines import new_run_id, until, wait_ended, whole_log

from .conftest import ACCOUNT, IS_ROOT, MakeEngine


def fake_system(root: Path, mounts: list[tuple[str, str, str]], own: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    lines = [f"cgroup {mount} {kind} {options} 0 0" for mount, kind, options in mounts]
    (root / "proc/self/mounts").write_text("\n".join(["proc /proc proc rw 0 0", *lines]) + "\n")
    (root / "proc/self/cgroup").write_text(own)
    return root


def v2_group(folder: Path, *, controllers: str, passed_on: str = "", procs: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(passed_on)
    (folder / "cgroup.procs").write_text(procs)
    return folder


def test_v1_is_detected_by_controller(tmp_path: Path) -> None:
    hierarchies = tmp_path / "cg"
    for name in ("memory/own", "cpu,cpuacct", "pids"):
        (hierarchies / name).mkdir(parents=True)
    mounts = [
        (str(hierarchies / "memory"), "cgroup", "rw,memory"),
        (str(hierarchies / "cpu,cpuacct"), "cgroup", "rw,cpu,cpuacct"),
        (str(hierarchies / "pids"), "cgroup", "rw,pids"),
    ]
    system = fake_system(tmp_path, mounts, "3:memory:/own\n2:cpu,cpuacct:/\n1:pids:/\n0::/\n")
    found = cgroups.detect("ours", system, superuser=True)
    assert found.version == 1
    assert found.homes == {
        "memory": hierarchies / "memory/own/ours",
        "cpu": hierarchies / "cpu,cpuacct/ours",
        "cpuacct": hierarchies / "cpu,cpuacct/ours",
        "pids": hierarchies / "pids/ours",
    }


def test_v2_in_a_delegated_group(tmp_path: Path) -> None:
    own = v2_group(tmp_path / "cg/user/own", controllers="cpu memory pids", passed_on="cpu memory pids")
    v2_group(own / "ours", controllers="cpu memory pids", passed_on="cpu memory pids")
    system = fake_system(tmp_path, [(str(tmp_path / "cg"), "cgroup2", "rw")], "0::/user/own\n")
    found = cgroups.detect("ours", system, superuser=False)
    assert found == Cgroups(2, dict.fromkeys(("memory", "cpu", "pids"), own / "ours"))


def test_v2_steps_aside_when_alone(tmp_path: Path) -> None:
    own = v2_group(tmp_path / "cg/own", controllers="memory", procs=f"{os.getpid()}\n")
    v2_group(own / "ours", controllers="memory")
    leaf = v2_group(own / "control", controllers="memory")
    assert cgroups._step_aside(own, ["memory"])
    assert (leaf / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+memory"
    (own / "cgroup.procs").write_text("1\n2\n")
    assert not cgroups._step_aside(own, ["memory"])


def test_nothing_without_controllers_or_rights(tmp_path: Path) -> None:
    v2_group(tmp_path / "cg", controllers="")
    system = fake_system(tmp_path, [(str(tmp_path / "cg"), "cgroup2", "rw")], "0::/\n")
    assert cgroups.detect("ours", system, superuser=True).version == 0
    assert cgroups.detect("ours", tmp_path / "missing", superuser=True).version == 0
    assert cgroups.plan(Cgroups(), "r.0", milli_cpus=1, memory_bytes=1, max_processes=1) is None


def test_v2_root_may_use_the_top() -> None:
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
    assert cgroups.v2_bases(mounts, "0::/a/b\n", superuser=False) == [Path("/sys/fs/cgroup/a/b")]
    assert cgroups.v2_bases(mounts, "0::/a/b\n", superuser=True)[1] == Path("/sys/fs/cgroup")


def v2_plan(home: Path) -> Group:
    found = Cgroups(2, dict.fromkeys(("memory", "cpu", "pids"), home))
    plan = cgroups.plan(found, "abc.0", milli_cpus=1500, memory_bytes=2**20, max_processes=99)
    assert plan is not None
    return Group.from_json(plan.to_json())


def test_v2_plan_is_carried_out(tmp_path: Path) -> None:
    plan = v2_plan(tmp_path)
    folder = tmp_path / "abc.0"
    folder.mkdir()
    for name in ("pids.max", "cpu.max", "memory.max", "memory.swap.max", "cgroup.procs", "cgroup.kill"):
        (folder / name).write_text("")
    cgroups.create(plan)  # memory.oom.group is missing, as in old kernels, and not required
    assert (folder / "cpu.max").read_text() == "150000 100000"
    assert (folder / "memory.max").read_text() == str(2**20)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "pids.max").read_text() == "99"
    cgroups.enter(plan)
    assert (folder / "cgroup.procs").read_text() == "0"
    cgroups.kill(plan)
    assert (folder / "cgroup.kill").read_text() == "1"
    (folder / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    (folder / "memory.peak").write_text("4096\n")
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert cgroups.oom_kills(plan) == 1
    assert cgroups.peak_memory(plan) == 4096
    (folder / "memory.stat").write_text("anon 100\nfile 3000\ninactive_file 2000\n")
    (folder / "memory.current").write_text("3100\n")
    assert cgroups.working_set(plan) == 1100
    assert cgroups.peak_memory(plan) == 1096, "files that the kernel keeps are not the job's memory"
    assert cgroups.peak_memory(plan, 2000) == 2000
    assert cgroups.peak_memory(plan, 9000) == 4096
    (folder / "memory.stat").write_text("anon 100\nfile 3000\nshmem 1000\ninactive_file 2000\n")
    assert cgroups.peak_memory(plan) == 2096, "memory that processes share is"
    assert cgroups.cpu_seconds(plan) == pytest.approx(2.5)
    (folder / "memory.max").unlink()
    with pytest.raises(FileNotFoundError):
        cgroups.create(plan)


def test_v2_figures_that_the_kernel_does_not_give(tmp_path: Path) -> None:
    plan = v2_plan(tmp_path)
    assert cgroups.oom_kills(plan) == 0
    assert cgroups.peak_memory(plan) is None
    assert cgroups.cpu_seconds(plan) is None
    cgroups.remove(plan)


def test_v1_plan(tmp_path: Path) -> None:
    homes = {name: tmp_path / name for name in ("memory", "cpu", "cpuacct", "pids")}
    plan = cgroups.plan(Cgroups(1, homes), "abc.0", milli_cpus=500, memory_bytes=4096, max_processes=9)
    assert plan is not None
    written = {Path(path).name: (value, required) for path, value, required in plan.writes}
    assert written["cpu.cfs_quota_us"] == ("50000", True)
    assert written["memory.limit_in_bytes"] == ("4096", True)
    assert written["memory.memsw.limit_in_bytes"] == ("4096", False)
    assert written["pids.max"] == ("9", False)
    (tmp_path / "memory/abc.0").mkdir(parents=True)
    (tmp_path / "memory/abc.0/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert cgroups.oom_kills(plan) == 3
    unlimited = cgroups.plan(Cgroups(1, homes), "abc.0", milli_cpus=500, memory_bytes=0, max_processes=9)
    assert unlimited is not None
    assert not any("memory" in path for path, _, _ in unlimited.writes)


def test_v1_homes_come_and_go(tmp_path: Path) -> None:
    plan = Group([str(tmp_path / "home/a.0")], leave_homes=False)
    cgroups.create(plan)
    other = Group([str(tmp_path / "home/b.0")], leave_homes=False)
    cgroups.create(other)
    cgroups.remove(plan)
    assert (tmp_path / "home").exists()
    cgroups.remove(other)
    assert not (tmp_path / "home").exists()
    kept = Group([str(tmp_path / "home/c.0")])
    cgroups.create(kept)
    cgroups.remove(kept)
    assert (tmp_path / "home").exists()


if IS_ROOT:

    @pytest.mark.anyio
    @pytest.mark.real
    async def test_groups_of_this_machine_limit_measure_and_go(make_engine: MakeEngine) -> None:
        engine = await make_engine()
        assert engine._cgroups.version, "this machine lets root make no cgroups: run the tests where it does"
        script = "cat /proc/self/cgroup; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
        run = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script), milli_cpus=1000, account=ACCOUNT)
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert run.id in (await whole_log(engine, run.id)).decode()
        assert end.usage is not None
        assert end.usage.cpu_seconds
        assert end.usage.peak_memory_bytes

        async def removed() -> bool:
            return not any((home / run.id).exists() for home in engine._cgroups.homes.values())

        await until(removed, "the groups to be removed")

        async def homes_removed() -> bool:
            return engine._cgroups.version == 2 or not any(home.exists() for home in engine._cgroups.homes.values())

        await until(homes_removed, "the groups above them to be removed")

    @pytest.mark.anyio
    @pytest.mark.real
    async def test_fork_bomb_is_contained(make_engine: MakeEngine) -> None:
        engine = await make_engine(max_processes=40)
        script = "bomb() { bomb | bomb & }; bomb; sleep 1000"
        run = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script), time_limit=1.0, account=ACCOUNT)
        await engine.submit(run)
        await wait_ended(engine, run.id)

        async def nobody_left() -> bool:
            return not any((home / run.id).exists() for home in engine._cgroups.homes.values())

        await until(nobody_left, "the groups to be empty and removed")
