"""The limit of logs: the middle goes, the place is marked, and the job writes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus.engines.base import Run
from isthmus.engines.local.log_limits import LEAST_BYTES, LogLimit, allowed, cut
from isthmus.testing.engines import new_run_id, wait_ended, whole_log

from .conftest import ACCOUNT, MakeEngine


def test_what_is_allowed() -> None:
    assert allowed(2**30, 2**40) == 2**30
    assert allowed(2**30, 8 * 2**20) == 2 * 2**20, "never more than a quarter of what is free"
    assert allowed(2**30, 0) == LEAST_BYTES


def test_the_middle_goes_and_the_job_writes_on(tmp_path: Path) -> None:
    path = tmp_path / "log"
    job = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(job, b"".join(b"%07d\n" % n for n in range(100_000)))
    dropped = cut(path, 80_000)
    os.write(job, b"more\n")
    text = path.read_bytes()
    os.close(job)
    assert dropped == 800_000 - 40_000 - 20_000
    assert text[:40_000] == b"".join(b"%07d\n" % n for n in range(5_000))
    assert b"[isthmus: 740000 bytes of output were dropped here" in text
    assert text.endswith(b"0099999\nmore\n")
    assert cut(path, 800_000) == 0


def test_a_link_in_the_place_of_a_log_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"x" * 10**6)
    (tmp_path / "log").symlink_to(victim)
    LogLimit([tmp_path / "log"], LEAST_BYTES).hold()
    assert victim.stat().st_size == 10**6


@pytest.mark.anyio
@pytest.mark.real
async def test_a_job_that_writes_too_much_keeps_its_beginning_and_its_end(make_engine: MakeEngine) -> None:
    engine = await make_engine(max_log_bytes=200_000)
    for log_bytes, most in ((0, 220_000), (100_000, 120_000)):
        script = "echo first; for n in $(seq 60); do head -c 50000 /dev/zero | tr '\\0' 'x'; echo; done; echo last"
        run = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script), account=ACCOUNT, log_bytes=log_bytes)
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        log = await whole_log(engine, run.id)
        assert len(log) <= most
        assert log.startswith(b"first\n")
        assert b"bytes of output were dropped here" in log
        assert log.endswith(b"last\n")
