"""Who jobs run as and what they see: in the sandbox, and (as root) by accounts alone."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from isthmus.engines.base import Account, EndReason, Run
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.isolation import Sandbox, _hidden
from isthmus.engines.local.layout import RunFolder
from isthmus.engines.local.settings import DeclaredDevices
from isthmus.errors import EngineRefused, Misconfigured, SiteUnavailable
from isthmus.testing.engines import FolderSource, new_run_id, wait_ended, wait_log_has, whole_log

from .conftest import ACCOUNT, IS_ROOT, OTHER_ACCOUNT, MakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.real]


async def output(
    engine: LocalEngine, script: str, account: Account = ACCOUNT, namespace: str = "n", **fields: object
) -> str:
    run = Run(new_run_id(), namespace, "j", ("/bin/sh", "-c", script), account=account, **fields)  # type: ignore
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert end.exit_code == 0, end
    return (await whole_log(engine, run.id)).decode()


async def test_sandbox_shows_the_system_and_the_job_only(engine: LocalEngine, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    script = f"""
        ls -A / | tr '\\n' ' '; echo
        ls -A /home /root /srv /mnt {tmp_path} {engine._layout.root} 2>/dev/null; echo listed
        cat {secret} 2>/dev/null; echo tried
        pwd; echo $HOME; ls -A /tmp | wc -l; ls -A /job | wc -l
        touch /usr/x /etc/x /x 2>/dev/null; echo $?
        touch /job/x /tmp/x /dev/shm/x && echo writable
        ls /proc | grep -c '^[0-9]*$'
        grep -c . /etc/passwd > /dev/null && echo etc
    """
    lines = (await output(engine, script)).splitlines()
    assert not {"home", "root", "srv", "mnt", "work", "data"} & set(lines[0].split())
    assert {"bin", "etc", "usr", "tmp", "job", "proc", "dev"} <= set(lines[0].split())
    assert lines[1:8] == ["listed", "tried", "/job", "/job", "0", "0", "1"]
    assert lines[8] == "writable"
    assert int(lines[9]) < 10
    assert lines[10] == "etc"


async def test_sandbox_has_no_rights(engine: LocalEngine) -> None:
    script = "grep -E '^(Uid|Gid|Groups|CapEff|CapPrm|NoNewPrivs)' /proc/self/status; id -u"
    text = await output(engine, script)
    status = dict(line.split(":", 1) for line in text.splitlines()[:-1])
    assert int(status["CapEff"], 16) == 0
    assert int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    uid = ACCOUNT.uid if IS_ROOT else os.getuid()
    assert status["Uid"].split() == [str(uid)] * 4
    if IS_ROOT:
        assert status["Gid"].split() == [str(uid)] * 4
        assert status["Groups"].split() == []


async def test_a_job_cannot_make_itself_harder_to_kill(engine: LocalEngine) -> None:
    script = "for n in 0 -500; do (echo $n > /proc/self/oom_score_adj) 2>/dev/null; done; cat /proc/self/oom_score_adj"
    assert await output(engine, script) == "500\n"


async def test_a_job_that_asks_for_no_memory_has_a_limit(make_engine: MakeEngine) -> None:
    engine = await make_engine(memory_bytes=256 * 2**20)
    hungry = "b = bytearray(); [b.extend(bytes(2**24)) for _ in range(64)]; print(len(b))"
    for share in (0, 64 * 2**20):
        run = Run(new_run_id(), "n", "j", ("python3", "-c", hungry), account=ACCOUNT, memory_share=share)
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        log = (await whole_log(engine, run.id)).decode()
        assert end.exit_code != 0
        if end.reason is EndReason.OUT_OF_MEMORY:
            assert "asks for none" in end.message
        else:  # where there are no cgroups, memory that is not there is refused
            assert "MemoryError" in log


async def test_the_size_of_a_file_can_be_limited(make_engine: MakeEngine) -> None:
    engine = await make_engine(max_file_bytes=2**20)
    script = "head -c 3000000 /dev/zero > big 2>/dev/null; stat -c %s big"
    assert await output(engine, script) == f"{2**20}\n"


async def test_environment_of_the_job_never_reaches_what_has_more_rights(engine: LocalEngine) -> None:
    # A library that the loader cannot find makes it complain in every program that sees the variable.
    run = Run(
        new_run_id(),
        "n",
        "j",
        ("/bin/sh", "-c", "echo ran"),
        env={"LD_PRELOAD": "/job/evil.so", "PATH": "/usr/bin:/bin", "UID": "7", "ENV": "/job/evil"},
        account=ACCOUNT,
    )
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    log = (await whole_log(engine, run.id)).decode()
    assert log.endswith("ran\n")
    # Once by `env` (for UID), once by the shell that is the job; not by bubblewrap, setpriv or the launcher.
    assert log.count("evil.so") == 2


async def test_network_is_there(engine: LocalEngine) -> None:
    assert "lo:" in await output(engine, "cat /proc/net/dev")


async def test_jobs_of_a_site_without_network_have_a_loopback_of_their_own(
    make_engine: MakeEngine, open_folder: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"""
import socket
for family, address in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_INET, ("192.0.2.1", 80))):
    with socket.socket(family) as s:
        s.settimeout(5)
        print(s.connect_ex(address) != 0)
with socket.create_server(("127.0.0.1", {port})):
    print("mine")
"""
        engine = await make_engine(network="None")
        assert await output(engine, f"exec python3 -c '{script}'") == "True\nTrue\nmine\n"
        assert (await engine.probe([])).features["network"] == "none"
    with pytest.raises(Misconfigured, match="no network"):
        await make_engine(root=open_folder, network="None", isolation="None")


async def test_visible_folders_and_hidden_platform(make_engine: MakeEngine, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "set.csv").write_text("1,2\n")
    (data / "set.csv").chmod(0o644)
    data.chmod(0o755)
    engine = await make_engine(visible=(data,))
    assert await output(engine, f"cat {data}/set.csv; touch {data}/x 2>/dev/null || echo read-only") == (
        "1,2\nread-only\n"
    )
    inside = await make_engine(root=data / "platform" / "site", visible=(data,))
    assert await output(inside, f"cat {data}/set.csv; ls -A {data}/platform | wc -l") == "1,2\n0\n"
    await inside.stop_keeper()


def test_what_is_hidden() -> None:
    assert _hidden(Path("/opt/isthmus/data/site"), ()) == (Path("/opt/isthmus/data"),)
    assert _hidden(Path("/opt/site"), ()) == (Path("/opt/site"),)
    assert _hidden(Path("/srv/isthmus/site"), ()) == ()


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs, in which bubblewrap can be installed and removed."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "setpriv").symlink_to(shutil.which("setpriv") or "/usr/bin/setpriv")
    return folder


def install(programs: Path) -> None:
    (programs / "bwrap").symlink_to(shutil.which("bwrap") or "/usr/bin/bwrap")


async def test_a_sandbox_installed_later_is_used_by_the_next_job(
    make_engine: MakeEngine, open_folder: Path, programs: Path
) -> None:
    engine = await make_engine(root=open_folder, programs=str(programs))
    assert "bubblewrap is not installed" in (await engine.probe([])).features["isolation"]
    assert "/job" not in await output(engine, "pwd", namespace="default")
    install(programs)
    assert await output(engine, "pwd", namespace="default") == "/job\n"
    assert (await engine.probe([])).features["isolation"] == "bubblewrap"


async def test_a_sandbox_removed_later_is_missed_by_the_next_job(
    make_engine: MakeEngine, open_folder: Path, programs: Path
) -> None:
    install(programs)
    preferred = await make_engine(root=open_folder, programs=str(programs))
    required = await make_engine(root=open_folder, programs=str(programs), isolation="Required", owner="other")
    assert await output(preferred, "pwd", namespace="physics") == "/job\n"
    (programs / "bwrap").unlink()
    with pytest.raises(EngineRefused, match="cannot isolate"):
        await output(preferred, "pwd", namespace="physics")
    with pytest.raises(SiteUnavailable, match="Isolation is required"):
        await output(required, "pwd", namespace="default")
    assert "only jobs of the tenant default" in (await preferred.probe([])).features["isolation"]
    with pytest.raises(Misconfigured, match="bubblewrap is not installed"):
        await required.probe([])


async def test_without_a_sandbox_other_tenants_run_only_where_the_settings_say_so(
    make_engine: MakeEngine, open_folder: Path, programs: Path
) -> None:
    careful = await make_engine(root=open_folder, programs=str(programs))
    with pytest.raises(EngineRefused, match="BestEffort"):
        careful.check(Run(new_run_id(), "physics", "j", ("true",), account=ACCOUNT))
    for isolation in ("BestEffort", "None"):
        engine = await make_engine(root=open_folder, programs=str(programs), isolation=isolation)
        assert await output(engine, "echo ran", namespace="physics") == "ran\n"


async def test_only_assigned_devices_are_there(make_engine: MakeEngine) -> None:
    boards = DeclaredDevices("board", 2, ("/dev/kmsg", "/dev/loop-control"))
    there = [path for path in boards.paths if Path(path).exists()]
    engine = await make_engine(devices=(DeclaredDevices("board", len(there), tuple(there)),))
    listed = await output(engine, "ls /dev", devices={"board": 1})
    assert Path(there[0]).name in listed
    assert "loop-control" not in listed
    assert "kmsg" not in await output(engine, "ls /dev")


def test_user_mode_has_no_setpriv() -> None:
    sandbox = Sandbox("/usr/bin/bwrap", None, (), ())
    assert "--cap-add" not in sandbox.options(RunFolder(Path("/x")), ())


async def test_files_belong_to_the_job(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = await make_engine()
    source = FolderSource(tmp_path / "source", {"a/b": b"1", "run": b"#!/bin/sh\n"}, {"run": 0o755})
    run = Run(new_run_id(), "n", "j", ("stat", "-c", "%U%u %a %n", "a", "a/b", "run", "."), account=ACCOUNT)
    await engine.submit(run, source)
    await wait_ended(engine, run.id)
    lines = [line.split() for line in (await whole_log(engine, run.id)).decode().splitlines()]
    assert [(mode, name) for _, mode, name in lines] == [("755", "a"), ("644", "a/b"), ("755", "run"), ("700", ".")]
    uid = ACCOUNT.uid if IS_ROOT else os.getuid()
    assert all(owner.endswith(str(uid)) for owner, _, _ in lines)
    assert engine._layout.root.stat().st_mode & 0o077 == 0


if IS_ROOT:

    async def test_accounts_alone_keep_tenants_apart(make_engine: MakeEngine, open_folder: Path) -> None:
        engine = await make_engine(root=open_folder, isolation="None")
        one = Run(
            new_run_id(),
            "a",
            "j",
            ("/bin/sh", "-c", "umask 0; echo mine > file; echo ready; exec sleep 1000"),
            env={"PASSWORD": "hidden"},
            account=ACCOUNT,
        )
        await engine.submit(one)
        await wait_log_has(engine, one.id, b"ready")
        folder = engine._layout.run(one.id).path
        script = f"""
            id -u; ls {folder} {folder.parent} 2>&1 | grep -c denied
            cat {folder}/work/file {folder}/stdout.log {folder}/spec.json {folder}/launch/launcher 2>/dev/null
            ls {folder}/work {folder}/launch 2>/dev/null; echo end
        """
        assert await output(engine, script, OTHER_ACCOUNT) == f"{OTHER_ACCOUNT.uid}\n2\nend\n"

    async def test_closed_parents_are_refused_without_a_sandbox(make_engine: MakeEngine, open_folder: Path) -> None:
        open_folder.parent.chmod(0o700)
        with pytest.raises(Misconfigured, match="closed"):
            await make_engine(root=open_folder, isolation="None")
