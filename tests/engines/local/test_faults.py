"""A machine that restarts, a disk that is full, two control planes, ids that are paths."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.engines.base import Account, EndReason, Observation, Run, RunState, Stream
from isthmus.engines.local.isolation import resolve
from isthmus.engines.local.supervising import judge
from isthmus.errors import EngineRefused, Misconfigured, NotFound, SiteUnavailable, Superseded
from isthmus.testing.engines import FolderSource, MemorySink, new_run_id, wait_ended, whole_log

from .conftest import ACCOUNT, IS_ROOT, MakeEngine

pytestmark = pytest.mark.anyio


def shell(script: str, **fields: object) -> Run:
    return Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script), account=ACCOUNT, **fields)  # type: ignore


async def test_another_boot_means_the_node_was_lost(make_engine: MakeEngine) -> None:
    engine = await make_engine()
    run = shell("exit 0")
    await engine.submit(run)
    await wait_ended(engine, run.id)
    folder = engine._layout.run(run.id)
    started = json.loads(folder.started.read_text())
    folder.started.write_text(json.dumps(started | {"boot": "another"}))
    folder.ended.unlink()
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.NODE_LOST
    assert await engine.submit(run) == end


@pytest.mark.parametrize("content", ["", "\0" * 4096, "[1]"])
async def test_records_destroyed_by_a_power_loss(make_engine: MakeEngine, content: str) -> None:
    engine = await make_engine()
    run = shell("exit 0")
    await engine.submit(run)
    await wait_ended(engine, run.id)
    folder = engine._layout.run(run.id)
    folder.started.write_text(content)
    folder.ended.write_text(content)
    seen = await engine.observe(run.id)
    assert seen is not None
    assert (seen.state, seen.reason) == (RunState.ENDED, EndReason.NODE_LOST)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


if IS_ROOT:  # only root can mount a small disk

    @pytest.mark.real
    async def test_full_disk_while_files_are_brought(small_disk: Path, make_engine: MakeEngine, tmp_path: Path) -> None:
        engine = await make_engine(root=small_disk / "site")
        source = FolderSource(tmp_path / "source", {"big": b"x" * 2**20})
        run = shell("echo fine; cat big | wc -c")
        with pytest.raises(SiteUnavailable, match="No space left"):
            await engine.submit(run, source)
        assert await engine.observe(run.id) is None
        assert not list(engine._layout.staging.rglob(f"{run.id}*"))
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
        await engine.submit(run, source)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"fine\n1048576\n"

    @pytest.mark.real
    async def test_job_that_fills_the_disk_still_ends(small_disk: Path, make_engine: MakeEngine) -> None:
        engine = await make_engine(root=small_disk / "site")
        run = shell("cat /dev/zero > big; cat /dev/zero > /tmp/big; exit 3")
        await engine.submit(run)
        end = await wait_ended(engine, run.id)
        assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 3)
        other = shell("exit 0")
        with pytest.raises(SiteUnavailable, match="No space left"):
            await engine.submit(other)
        await engine.tidy(run.id)
        await engine.submit(other)
        assert (await wait_ended(engine, other.id)).exit_code == 0


async def test_two_control_planes_start_one_process(make_engine: MakeEngine) -> None:
    """Of both, the one that opened the site first can only find what the other began."""
    one, two = await make_engine(), await make_engine()
    for _ in range(10):
        run = shell("echo once")
        answers = await asyncio.gather(
            one.submit(run), two.submit(run), one.submit(run), two.submit(run), return_exceptions=True
        )
        assert {type(answer) for answer in answers} <= {Observation, Superseded}
        first, second = await wait_ended(one, run.id), await wait_ended(two, run.id)
        assert first == second
        assert await whole_log(two, run.id) == b"once\n"


async def test_cancel_before_the_start_prevents_it(make_engine: MakeEngine) -> None:
    engine = await make_engine()
    run = shell("echo never")
    engine._prepare(run, None)
    assert await engine.observe(run.id) is None
    await engine.cancel(run.id)
    end = await engine.observe(run.id)
    assert end is not None
    assert (end.state, end.reason) == (RunState.ENDED, EndReason.CANCELLED)
    assert await engine.submit(run) == end
    assert await whole_log(engine, run.id) == b""


async def test_bursts_of_submissions_and_cancels(make_engine: MakeEngine) -> None:
    engine = await make_engine()
    runs = [shell("exec sleep 1000") for _ in range(12)]

    async def there_and_back(run: Run) -> EndReason | None:
        await engine.submit(run)
        await engine.cancel(run.id, grace=0)
        return (await wait_ended(engine, run.id)).reason

    assert set(await asyncio.gather(*map(there_and_back, runs))) == {EndReason.CANCELLED}


@pytest.mark.parametrize("run_id", ["../../etc", "..", "", "abc", "a/b.0", "abc.0/../x", "ABC.0", "abc.01", "abc.0\n"])
async def test_ids_that_are_not_ids(make_engine: MakeEngine, run_id: str) -> None:
    engine = await make_engine()
    with pytest.raises(EngineRefused):
        await engine.submit(Run(run_id, "n", "j", ("true",), account=ACCOUNT))
    assert await engine.observe(run_id) is None
    await engine.cancel(run_id)
    await engine.tidy(run_id)
    await engine.forget(run_id)
    with pytest.raises(NotFound):
        await engine.read_log(run_id, Stream.STDOUT, 0, 1)
    with pytest.raises(NotFound):
        await engine.collect(run_id, ["*"], MemorySink())


async def test_what_can_never_work_is_refused(make_engine: MakeEngine) -> None:
    engine = await make_engine(cpus=2, memory_bytes=2**30)
    for fields in (
        {"image": "No Image"},
        {"nodes": 2},
        {"milli_cpus": 3000},
        {"memory_bytes": 2**31},
        {"devices": {"akida": 1}},
        {"env": {"A B": "x"}},
        {"env": {"A;touch x": "x"}},
    ):
        with pytest.raises(EngineRefused):
            engine.check(shell("true", **fields))
    with pytest.raises(EngineRefused):
        engine.check(Run(new_run_id(), "n", "j", account=ACCOUNT))


def test_root_is_refused() -> None:
    for account in (Account(), Account(uid=0), Account(user="root")):
        with pytest.raises(EngineRefused, match="root"):
            resolve(account, superuser=True)
    with pytest.raises(EngineRefused, match="no account"):
        resolve(Account(user="nobody-by-this-name"), superuser=True)
    assert resolve(Account(uid=261_001), superuser=True).gid == 261_001


async def test_required_isolation_that_cannot_be_had(
    make_engine: MakeEngine, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(Misconfigured, match="bubblewrap is not installed"):
        await make_engine(root=open_folder, isolation="Required")
    preferred = await make_engine(root=open_folder, isolation="Preferred")
    features = (await preferred.probe([])).features
    assert "bubblewrap is not installed" in features["isolation"]


def test_judging_an_end() -> None:
    common = {"wanted": "", "report": b"+", "oom_kills": 0, "sandboxed": True, "program": "p"}

    def verdict(status: int, **changes: object) -> tuple[object, ...]:
        seen = judge(status, **(common | changes))  # type: ignore[arg-type]
        return seen.reason, seen.exit_code, seen.signal

    assert verdict(0) == ("Completed", 0, None)
    assert verdict(3 << 8) == ("Completed", 3, None)
    assert verdict(9, sandboxed=False) == ("Completed", None, "SIGKILL")
    assert verdict((128 + 11) << 8) == ("Completed", None, "SIGSEGV")
    assert verdict((128 + 11) << 8, sandboxed=False) == ("Completed", 139, None)
    assert verdict(255 << 8) == ("Completed", 255, None)
    assert verdict(137 << 8, oom_kills=1) == ("OutOfMemory", None, "SIGKILL")
    assert verdict(0, oom_kills=1) == ("Completed", 0, None)
    assert verdict(137 << 8, wanted="TimeLimit", oom_kills=0) == ("TimeLimit", None, "SIGKILL")
    assert verdict(127 << 8, report=b"+missing") == ("StartFailed", 127, None)
    assert verdict(1 << 8, report=b"") == ("StartFailed", None, None)
    assert verdict(127 << 8, report=b"The job could not be started: no") == ("StartFailed", None, None)


async def test_a_run_that_is_cancelled_before_it_is_known_is_never_started(make_engine: MakeEngine) -> None:
    engine = await make_engine()
    run = shell("echo ran")
    await engine.cancel(run.id, grace=0)
    seen = await engine.submit(run)
    assert (seen.state, seen.reason, seen.started_at) == (RunState.ENDED, EndReason.CANCELLED, None)
    await engine.tidy(run.id)
    await engine.forget(run.id)
    assert await engine.observe(run.id) is None
