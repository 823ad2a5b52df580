"""What goes wrong on clusters: nothing is lost, run twice, or called gone because a question failed."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, RunState, Stream
from isthmus.engines.slurm import driver
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import SlurmJob
from isthmus.engines.slurm.observing import liveness
from isthmus.engines.slurm.opening import make_engine as make
from isthmus.engines.slurm.settings import RestSettings, SlurmSettings
from isthmus.engines.slurm.transports import tokens
from isthmus.errors import SiteUnavailable
from isthmus.lab import processes
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings
from isthmus.lab.slurm.login import LoginNode
from isthmus.resources.jobs import SlurmOptions
from isthmus.testing.engines import until, wait_ended, wait_log_has, whole_log
from isthmus.testing.slurm import running_slurm

from .conftest import SSH_USER, MakeEngine, settings_of, ssh_settings
from .test_exactly_once import jobs_of, run_of

pytestmark = [pytest.mark.real, pytest.mark.anyio]
QUICK = {"MessageTimeout": "5"}


@pytest.fixture(scope="module")
def mended(release: str) -> Iterator[SlurmLab]:
    """A lab to break, for tests that leave it as it was."""
    with running_slurm(2, LabSettings(options=QUICK, release=release)) as lab:
        yield lab


@pytest.fixture
def broken(release: str) -> Iterator[SlurmLab]:
    """A lab to break for good."""
    with running_slurm(2, LabSettings(options=QUICK, release=release)) as lab:
        yield lab


async def running(engine: SlurmEngine, run_id: str) -> bool:
    seen = await engine.observe(run_id)
    return seen is not None and seen.state is RunState.RUNNING


async def test_slurmctld_is_down_and_comes_back(mended: SlurmLab, make_engine: MakeEngine) -> None:
    engine = await make_engine(settings_of(mended))
    run = run_of("echo begun; sleep 3; echo done")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    await asyncio.to_thread(mended.stop_controller)
    assert await running(engine, run.id), "what was known stays known"
    late = run_of("echo late")
    with pytest.raises(SiteUnavailable):
        await engine.submit(late)
    with pytest.raises(SiteUnavailable):
        await engine.probe(())
    await wait_log_has(engine, run.id, b"done\n")
    assert await running(engine, run.id), "its end is not known while nobody can be asked"
    await asyncio.to_thread(mended.start_controller)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    await engine.submit(late)
    assert (await wait_ended(engine, late.id)).exit_code == 0
    assert len(jobs_of(mended, late.id)) == 1


async def test_a_backup_controller_takes_over(release: str, make_engine: MakeEngine) -> None:
    options = {**QUICK, "SlurmctldTimeout": "5"}
    with running_slurm(2, LabSettings(backup=True, options=options, release=release)) as pair:
        engine = await make_engine(settings_of(pair))
        run, waits = run_of("echo begun; until test -e go; do sleep 0.1; done; exit 4"), run_of("echo waited")
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"begun\n")
        blocked = replace(waits, options=(SlurmOptions(dependency=f"afterany:{engine._active[run.id].record.job}"),))
        await engine.submit(blocked)
        # What was submitted within the last moments may not be on disk yet: then the backup would not have it.
        await until(lambda: asyncio.sleep(0.2, _saved(pair)), "slurmctld to save its state")
        await asyncio.to_thread(pair.stop_controller, kill=True)
        assert await running(engine, run.id)
        await until(lambda: asyncio.sleep(0.2, pair.backup.in_charge()), "the backup to take over")
        (Path(engine._files.folder(run.id)) / "work" / "go").touch()
        assert (await wait_ended(engine, run.id)).exit_code == 4
        assert (await wait_ended(engine, blocked.id)).exit_code == 0
        late = run_of("echo late")
        await engine.submit(late)
        assert (await wait_ended(engine, late.id)).exit_code == 0
        for one in (run, blocked, late):
            assert len(jobs_of(pair, one.id)) == 1


def _saved(lab: SlurmLab) -> bool:
    """Whether the state on disk is younger than a few seconds' worth of submissions."""
    file = lab.place.root / "state" / "job_state"
    return file.exists() and b"afterany" in file.read_bytes()


async def test_slurmctld_is_started_cold(
    broken: SlurmLab, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgets everything: what had ended is known by its own word, what waited is sent again, numbers are reused."""
    monkeypatch.setattr(liveness, "QUIET_SECONDS", 5.0)
    settings = settings_of(broken)
    engine = await make_engine(settings)
    over, lost = run_of("echo over; exit 5"), run_of("echo running; exec sleep 1000")
    await engine.submit(over)
    await wait_log_has(engine, over.id, b"over\n")
    await engine.submit(lost)
    await wait_log_has(engine, lost.id, b"running\n")
    blocked = run_of("echo mine", nodes=2, tasks=2, milli_cpus=4000)
    await engine.submit(blocked)
    first = engine._active[blocked.id].record.job
    await engine.close()
    await asyncio.to_thread(broken.stop_controller)
    for number in (1, 2):
        broken.node(broken.place.node_name(number)).clean()
    for file in (broken.place.root / "state").glob("*"):
        if file.name != "jwt.key":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    await asyncio.to_thread(broken.start_controller)
    await asyncio.to_thread(broken.up, 2)
    other = broken.call("sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 1000").strip()
    assert int(other) <= (first or 0), "a number is another's now"
    again = await make_engine(settings)
    end = await wait_ended(again, over.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 5)
    end = await wait_ended(again, lost.id)
    assert end.reason is EndReason.SUPERVISOR_LOST

    broken.call("scancel", other)

    async def sent_again() -> bool:
        try:
            await again.submit(blocked)
        except SiteUnavailable:  # it is not yet sure that Slurm has lost it
            return False
        return True

    await until(sent_again, "the run that never began to be given up and sent again")
    assert (await wait_ended(again, blocked.id)).exit_code == 0
    assert sorted((await whole_log(again, blocked.id)).split()) == [b"mine", b"mine"]


async def test_a_node_dies_under_a_job(broken: SlurmLab, make_engine: MakeEngine) -> None:
    engine = await make_engine(settings_of(broken))
    run = run_of("echo begun; exec sleep 1000")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    job = engine._active[run.id].job
    assert job is not None
    name = broken.call("squeue", "-h", "-j", str(job.id), "-o", "%N").strip()
    broken.node(name).crash()
    assert await running(engine, run.id), "a node that does not answer may yet come back"
    # What slurmctld does by itself after SlurmdTimeout, and an administrator who does not want to wait for it.
    broken.call("scontrol", "update", f"nodename={name}", "state=down", "reason=died")
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.NODE_LOST
    assert end.exit_code is None


async def test_a_node_dies_under_a_job_that_may_begin_again(broken: SlurmLab, make_engine: MakeEngine) -> None:
    """Slurm gives it to another node under the same number; it is one run, and not lost."""
    engine = await make_engine(settings_of(broken))
    script = 'echo "try ${SLURM_RESTART_COUNT:-0}"; test -n "$SLURM_RESTART_COUNT" && exit 0; exec sleep 1000'
    run = run_of(script, options=(SlurmOptions(requeue=True),))
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"try 0\n")
    number = engine._active[run.id].record.job
    name = broken.call("squeue", "-h", "-j", str(number), "-o", "%N").strip()
    broken.node(name).crash()
    broken.call("scontrol", "update", f"nodename={name}", "state=down", "reason=died")
    # What slurmctld waits for by itself before it begins a requeued job again: minutes.
    await until(lambda: asyncio.sleep(0.2, _hurried(broken, number)), "slurmctld to queue it again")
    await wait_log_has(engine, run.id, b"try 1\n")
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code, end.engine_id) == (EndReason.COMPLETED, 0, str(number))
    assert jobs_of(broken, run.id) == [str(number)]


def _hurried(lab: SlurmLab, number: int | None) -> bool:
    """Whether a job waits again; it is told to begin now."""
    if lab.call("squeue", "-h", "-j", str(number), "-o", "%T").strip() != "PENDING":
        return False
    lab.call("scontrol", "update", f"jobid={number}", "starttime=now")
    return True


class Impostor:
    """A `squeue` that can be told to lie."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.answer = folder / "answer"
        script = folder / "squeue"
        script.write_text(
            f'#!/bin/sh\nPATH=${{PATH#*:}}\n[ -e {self.answer} ] || exec squeue "$@"\n'
            f"case $(cat {self.answer}) in\n"
            "  empty) exit 0 ;;\n"
            '  heading) exec squeue "$@" --jobs=999999 ;;\n'
            "  *) echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1 ;;\n"
            "esac\n"
        )
        script.chmod(0o755)


@pytest.mark.parametrize("lie", ["empty", "heading", "error"])
async def test_an_empty_answer_is_not_an_answer(
    lie: str, settings: SlurmSettings, make_engine: MakeEngine, tmp_path: Path
) -> None:
    impostor = Impostor(tmp_path / "bin")
    engine = await make_engine(replace(settings, path=f"{impostor.folder}:{settings.path}"))
    run = run_of("echo begun; until test -e go; do sleep 0.1; done; exit 3")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    impostor.answer.write_text(lie)
    asked = engine._budget.calls

    async def several() -> bool:
        engine._watcher.nudge()
        return engine._budget.calls > asked + 8

    await until(several, "some questions to be asked in vain")
    assert await running(engine, run.id)
    impostor.answer.unlink()
    (Path(settings.folder) / "runs" / run.id / "work" / "go").touch()
    assert (await wait_ended(engine, run.id)).exit_code == 3


async def test_slurmrestd_is_away(mended: SlurmLab, make_engine: MakeEngine) -> None:
    rest = RestSettings(url=mended.place.rest_url, key_file=mended.place.jwt_key)
    engine = await make_engine(replace(settings_of(mended), transport="REST", rest=rest))
    run = run_of("echo begun; sleep 2")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    await asyncio.to_thread(mended.stop_rest)
    late = run_of("echo late")
    with pytest.raises(SiteUnavailable):
        await engine.submit(late)
    assert await running(engine, run.id)
    await asyncio.to_thread(mended.start_rest)
    await asyncio.to_thread(mended._wait_rest)
    assert (await wait_ended(engine, run.id)).exit_code == 0
    await engine.submit(late)
    assert (await wait_ended(engine, late.id)).exit_code == 0
    assert len(jobs_of(mended, late.id)) == 1


async def test_slurmrestd_is_full(mended: SlurmLab, make_engine: MakeEngine) -> None:
    """It holds about 124 connections, and whoever comes then gets no answer: nothing is concluded from that."""
    rest = RestSettings(url=mended.place.rest_url, key_file=mended.place.jwt_key)
    settings = replace(settings_of(mended), transport="REST", rest=rest, command_seconds=2)
    engine = await make_engine(settings)
    run, late = run_of("echo begun; until test -e go; do sleep 0.1; done; exit 6"), run_of("echo late")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    await engine._transport.close()  # its connections are given to others
    engine._transport = engine._watcher._transport = engine._settler._transport = make(settings)._transport
    others = [socket.create_connection(("127.0.0.1", mended.place.port(3))) for _ in range(200)]
    try:
        with pytest.raises(SiteUnavailable):
            await engine._transport.open()
        with pytest.raises(SiteUnavailable):
            await engine.submit(late)
        assert await running(engine, run.id)
    finally:
        for other in others:
            other.close()

    async def answers() -> bool:
        try:
            await engine._transport.open()
        except SiteUnavailable:
            return False
        return True

    await until(answers, "slurmrestd to answer again")
    await engine.submit(late)
    (Path(engine._files.folder(run.id)) / "work" / "go").touch()
    assert (await wait_ended(engine, run.id)).exit_code == 6
    assert (await wait_ended(engine, late.id)).exit_code == 0
    assert len(jobs_of(mended, late.id)) == 1


async def test_clocks_are_minutes_apart(
    lab: SlurmLab, make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's clock runs ten minutes ahead of slurmctld's, the control plane's four minutes behind."""
    (lab.place.shared / "ahead").mkdir(exist_ok=True)
    clock = lab.place.shared / "ahead" / "date"
    clock.write_text('#!/bin/sh\nexec /bin/date -d "10 minutes" "$@"\n')
    for path in (clock.parent, clock):
        path.chmod(0o755)
    now = time.time
    for module in (driver, tokens):
        monkeypatch.setattr(module.time, "time", lambda: now() - 240)
    rest = RestSettings(url=lab.place.rest_url, key_file=lab.place.jwt_key)
    engine = await make_engine(
        settings_of(lab), transport="REST", rest=rest, path=f"{clock.parent}:{lab.place.programs}/bin"
    )
    run = run_of("date +%s; sleep 2")
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert float(await whole_log(engine, run.id)) > now() + 300, "the node's clock is wrong indeed"
    assert end.started_at is not None
    assert end.ended_at is not None
    assert abs(end.started_at.timestamp() - now()) < 120, "times are those of slurmctld's clock"
    assert end.usage is not None
    assert 2 <= (end.usage.elapsed_seconds or 0) < 60
    assert end.usage.elapsed_seconds == pytest.approx((end.ended_at - end.started_at).total_seconds())


async def test_a_job_that_slurm_has_forgotten_is_known_by_its_own_word(
    engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end and MinJobAge passed unseen."""
    run = run_of("echo x; exit 7")

    ended = Path(engine._files.folder(run.id)) / "ended"

    async def nothing() -> list[SlurmJob]:
        if not ended.exists():
            raise SiteUnavailable("nobody asks before its end")
        return []

    async def no_such_job(number: int) -> None:
        del number

    monkeypatch.setattr(engine._transport, "jobs", nothing)
    monkeypatch.setattr(engine._transport, "job", no_such_job)
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 7)


async def test_a_number_that_is_used_again_is_not_taken_for_ours(
    lab: SlurmLab, engine: SlurmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a cold start the run's number belongs to somebody else's job, which ends."""
    run = run_of("echo begun; exec sleep 1000")
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    known = engine._active[run.id]
    assert known.job is not None
    other = replace(known.job, states=("COMPLETED",), comment="somebody's", user="root", exit_code=0)

    async def jobs() -> list[SlurmJob]:
        return [other]

    async def some(numbers: object, user: str = "") -> list[SlurmJob]:
        del numbers, user
        return [other]

    async def job(number: int) -> SlurmJob:
        del number
        return other

    with monkeypatch.context() as patch:
        patch.setattr(engine._transport, "jobs", jobs)
        patch.setattr(engine._transport, "some", some)
        patch.setattr(engine._transport, "job", job)
        before = known.missing
        await engine._digest(await engine._watcher.fresh())
        assert known.missing > before, "nobody has seen it"
        assert await running(engine, run.id)
    await engine._digest(await engine._watcher.fresh())
    assert known.missing == 0
    await engine.cancel(run.id)


async def test_ssh_is_cut_under_a_log_and_under_a_submission(
    lab: SlurmLab, login: LoginNode, make_engine: MakeEngine, tmp_path: Path
) -> None:
    slow = Path(tempfile.mkdtemp(prefix="isl-"))
    slow.chmod(0o755)
    (slow / "sbatch").write_text('#!/bin/sh\nPATH=${PATH#*:} sbatch "$@" || exit\ntouch %s/sent\nsleep 1000\n' % slow)  # noqa: UP031
    (slow / "sbatch").chmod(0o755)
    slow.chmod(0o777)
    try:
        base = ssh_settings(lab, login, service=SSH_USER)
        engine = await make_engine(base)
        run = run_of("echo begun; until test -e go; do sleep 0.1; done; echo done")
        await engine.submit(run)
        await wait_log_has(engine, run.id, b"begun\n")
        waiting = asyncio.create_task(engine.wait_log(run.id, Stream.STDOUT, 6, 60))
        assert login._sessions()
        await asyncio.to_thread(login.drop)
        (Path(base.folder) / "runs" / run.id / "work" / "go").touch()
        await waiting
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"begun\ndone\n"

        stuck = await make_engine(replace(base, path=f"{slow}:{base.path}"))
        second = run_of("echo once")
        sending = asyncio.create_task(stuck.submit(second))
        await until(lambda: asyncio.sleep(0, (slow / "sent").exists()), "the job to be sent")
        await asyncio.to_thread(login.drop)
        with pytest.raises(SiteUnavailable):
            await sending
        await stuck.submit(second)
        assert (await wait_ended(stuck, second.id)).exit_code == 0
        assert len(jobs_of(lab, second.id)) == 1
    finally:
        processes.kill_all(lambda: _sleeping(slow))
        shutil.rmtree(slow)


def _sleeping(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
