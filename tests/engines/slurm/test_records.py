"""Records with several writers: nobody fails because a run is over, and nobody takes back what another wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import cast

import pytest

from isthmus.engines.base import EndReason, Observation, RunState
from isthmus.engines.slurm.files import records
from isthmus.engines.slurm.files.base import RunFiles
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.files.remote import RemoteFiles
from isthmus.engines.slurm.files.shared import SharedFiles
from isthmus.engines.slurm.observing.settling import KnownRun, RunSettler
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.engines.slurm.transports.base import SlurmTransport
from isthmus.engines.slurm.transports.ssh import SshConnections
from isthmus.errors import SiteUnavailable
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.testing.engines import until, wait_ended, wait_log_has

from .conftest import MakeEngine, ssh_settings
from .test_exactly_once import run_of

OpenFiles = Callable[..., Awaitable[RunFiles]]
RECORD = RunRecord("u.0", "me", 1.0, 7)
DONE = Observation(RunState.ENDED, "7", reason=EndReason.COMPLETED, exit_code=0)


def test_a_writer_that_knows_less_takes_nothing_back() -> None:
    written = [RECORD, replace(RECORD, cancelled=True), RECORD.ended(DONE), replace(RECORD, held=True)]
    for order in permutations(written):
        found = records.load("u.0", b"\n".join(map(records.dump, order)))
        assert (found.cancelled, found.final, found.held) == (True, DONE, order[-1].held)


def test_of_two_ends_the_later_counts() -> None:
    corrected = replace(DONE, message="one of its steps ended with exit code 5")
    lines = [RECORD.ended(DONE), RECORD.ended(corrected), RECORD]
    assert records.load("u.0", b"\n".join(map(records.dump, lines))).final == corrected


@pytest.fixture(params=["shared", pytest.param("ssh", marks=pytest.mark.real)])
async def open_files(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenFiles]:
    """Opens one folder, in both ways, as often as it is called."""
    make: Callable[[str], RunFiles] = partial(SharedFiles, str(tmp_path))
    if request.param == "ssh":
        settings = ssh_settings(request.getfixturevalue("lab"), request.getfixturevalue("login"), service="root")
        make = lambda owner: RemoteFiles(settings.folder, SshConnections(settings.ssh, 30.0), owner)  # noqa: E731
    opened: list[RunFiles] = []

    async def open_one(owner: str = "site") -> RunFiles:
        opened.append(make(owner))
        await opened[-1].open()
        return opened[-1]

    yield open_one
    for made in opened:
        await made.close()


@pytest.fixture
async def files(open_files: OpenFiles) -> RunFiles:
    return await open_files()


@pytest.mark.anyio
async def test_what_is_over_is_not_written_to(files: RunFiles) -> None:
    assert await files.create_record("u.0", records.dump(RECORD))
    assert await files.write_record("u.0", records.dump(replace(RECORD, held=True)))
    assert await files.finish_record("u.0", records.dump(RECORD.ended(DONE)))
    assert not await files.write_record("u.0", records.dump(replace(RECORD, cancelled=True)))
    other = replace(DONE, exit_code=1)
    assert not await files.finish_record("u.0", records.dump(RECORD.ended(other))), "whoever was first found it out"
    assert not await files.create_record("u.0", records.dump(RECORD))
    assert await files.list_records() == (set(), {"u.0"})
    assert records.load("u.0", await files.read_record("u.0") or b"") == RECORD.ended(DONE)


@pytest.mark.anyio
async def test_what_was_forgotten_does_not_come_back(files: RunFiles) -> None:
    assert await files.create_record("u.0", records.dump(RECORD))
    await files.drop_record("u.0")
    for write in (files.write_record, files.finish_record):
        with pytest.raises(SiteUnavailable, match=r"record of run u\.0 is no longer"):
            await write("u.0", records.dump(RECORD.ended(DONE)))
    assert await files.list_records() == (set(), set())


@pytest.mark.anyio
async def test_whoever_opened_the_folder_last_can_begin_runs(open_files: OpenFiles) -> None:
    first, neighbour = await open_files(), await open_files("another-site")
    assert await first.create_record("u.0", records.dump(RECORD))
    second = await open_files()
    with pytest.raises(SiteUnavailable):
        await first.create_record("u.1", records.dump(RECORD))
    assert not await first.ours()
    assert await second.create_record("u.2", records.dump(RECORD))
    assert await neighbour.create_record("u.3", records.dump(RECORD)), "another site with that folder is left alone"
    assert (await second.ours(), await neighbour.ours()) == (True, True)
    assert await second.list_records() == ({"u.0", "u.2", "u.3"}, set())
    assert await first.write_record("u.0", records.dump(RECORD)), "what was begun goes on"


class Slow(SharedFiles):
    """Begins to write an end and waits."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def finish_record(self, run_id: str, content: bytes) -> bool:
        self.begun.set()
        await self.go.wait()
        return await super().finish_record(run_id, content)

    async def write_record(self, run_id: str, content: bytes) -> bool:
        if records.load(run_id, content).final is not None:
            self.begun.set()
            await self.go.wait()
        return await super().write_record(run_id, content)


@pytest.mark.anyio
@pytest.mark.parametrize("late", [True, False])
async def test_whatever_changes_while_an_end_is_written_both_are_kept(late: bool, tmp_path: Path) -> None:
    files = Slow(str(tmp_path))
    await files.open()
    await files.create_record("u.0", records.dump(RECORD))
    known, settler = KnownRun(RECORD), RunSettler(cast(SlurmTransport, None), files, no_pictures)
    ending = asyncio.create_task(settler.finish(known, DONE, late=late))
    await files.begun.wait()
    known.record = replace(known.record, cancelled=True, held=True)
    noting = asyncio.create_task(settler.note(known))
    await asyncio.sleep(0)
    files.go.set()
    await ending
    assert not await noting, "it is over"
    assert (known.record.final, known.record.cancelled, known.record.held) == (DONE, True, True)
    assert records.load("u.0", await files.read_record("u.0") or b"").final == DONE
    await settler.close()
    await files.close()


async def no_pictures(since: float) -> None:
    raise AssertionError(since)


@pytest.mark.real
@pytest.mark.anyio
async def test_it_is_cancelled_while_another_control_plane_finishes_it(
    lab: SlurmLab, settings: SlurmSettings, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = lab.place.shared / f"go-{Path(settings.folder).name}"
    run = run_of(f"echo begun; while ! test -e {go}; do sleep 0.1; done; exit 7")
    engine = await make_engine()
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    other = await make_engine()
    really = SharedFiles.write_record

    async def after_the_end(files: SharedFiles, run_id: str, content: bytes) -> bool:
        if records.load(run_id, content).cancelled:
            go.touch()
            await until(lambda: asyncio.sleep(0, (Path(settings.folder) / "over" / run_id).exists()), "the end")
        return await really(files, run_id, content)

    monkeypatch.setattr(SharedFiles, "write_record", after_the_end)
    await engine.cancel(run.id)
    for each in (engine, other):
        end = await wait_ended(each, run.id)
        assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 7), "nobody cancelled it: it had ended"
