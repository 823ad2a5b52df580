"""Two control planes on one PostgreSQL: one leads, the other takes over, nothing runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.testing.postgres import Postgres
from isthmus.testing.servers import ServerProcess, eventually

pytestmark = pytest.mark.real


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """The first leads; the second stands by."""
    with Postgres(durable=False) as database:
        first = ServerProcess(tmp_path / "first", store=database.url)
        second = ServerProcess(tmp_path / "second", store=database.url)
        first.start()
        eventually(lambda: leading(first))
        second.start()
        try:
            yield first, second
        finally:
            for server in (first, second):
                if server.process and server.process.poll() is None:
                    server.process.send_signal(signal.SIGCONT)
                    server.stop()


def leading(server: ServerProcess) -> bool:
    return b"isthmus_leading 1.0" in server.request("/metrics")


def test_both_answer_and_one_works(pair: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = pair
    second.submit("via-second", script="echo ran")
    assert first.finished("via-second")["phase"] == "Succeeded"
    assert second.output("via-second") == "ran\n"
    assert leading(first)
    assert not leading(second)


def test_when_the_leader_is_killed_the_other_goes_on_with_its_jobs(pair: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = pair
    first.submit("across", script="echo ran; sleep 3; echo end")
    eventually(lambda: first.status("across")["phase"] == "Running")
    first.kill()
    second.submit("meanwhile", script="echo ran")
    assert second.finished("meanwhile")["phase"] == "Succeeded"
    assert second.finished("across")["phase"] == "Succeeded"
    assert second.output("across") == "ran\nend\n"


def test_a_leader_that_stops_in_order_hands_over(pair: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = pair
    first.stop()
    eventually(lambda: leading(second))


def test_a_leader_that_was_paused_wakes_up_and_does_nothing(pair: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = pair
    assert first.process is not None
    names = [f"job-{n}" for n in range(8)]
    for name in names[:4]:
        first.submit(name, script="echo ran; sleep 0.5", resources={"cpus": "0.5"})
    os.kill(first.process.pid, signal.SIGSTOP)
    for name in names[4:]:
        second.submit(name, script="echo ran; sleep 0.5", resources={"cpus": "0.5"})
    eventually(lambda: leading(second))
    os.kill(first.process.pid, signal.SIGCONT)
    for name in names:
        assert second.finished(name)["phase"] == "Succeeded"
        assert second.output(name) == "ran\n"
    eventually(lambda: not leading(first))
    assert leading(second)


def test_a_leader_that_was_paused_for_a_moment_goes_on_leading(pair: tuple[ServerProcess, ServerProcess]) -> None:
    first, second = pair
    assert first.process is not None
    os.kill(first.process.pid, signal.SIGSTOP)
    time.sleep(1.0)  # less than the lease lasts
    os.kill(first.process.pid, signal.SIGCONT)
    first.submit("after", script="echo ran")
    assert first.finished("after")["phase"] == "Succeeded"
    assert leading(first)
    assert not leading(second)


def test_files_sent_to_one_are_there_for_the_other(pair: tuple[ServerProcess, ServerProcess], tmp_path: Path) -> None:
    _, second = pair
    work = tmp_path / "work"
    work.mkdir()
    (work / "input").write_text("sent along")
    environment = {**os.environ, "ISTHMUS_URL": second.url, "ISTHMUS_TOKEN": second.token}
    words = [sys.executable, "-m", "isthmus.cli", "run", "--outputs", "copy", "--", "cp", "input", "copy"]
    done = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (work / "copy").read_text() == "sent along"
