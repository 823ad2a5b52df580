"""A disk that is full, a database that another program holds: a clear error, and everything else goes on."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from isthmus.testing.servers import ServerProcess, eventually

from .conftest import Answer, ask

pytestmark = pytest.mark.real


def submit(server: ServerProcess, name: str, script: str = "true") -> Answer:
    body = {"kind": "Job", "metadata": {"name": name}, "spec": {"script": script}}
    return ask(server, "POST", server.jobs(), body)


def put(server: ServerProcess, content: bytes) -> Answer:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return ask(server, "PUT", f"/apis/isthmus.dev/v1/namespaces/default/files/{digest}", content)


def _is_gone(server: ServerProcess, path: str) -> bool:
    return ask(server, "GET", path).code == 404


def fill(folder: Path) -> Path:
    """Leave no room on the disk of a folder."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


if os.geteuid() == 0:

    @pytest.fixture
    def small_disk(tmp_path: Path) -> Iterator[Path]:
        """A disk of its own, of 48 MiB."""
        disk = tmp_path / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=755", "tmpfs", str(disk)], check=True)
        yield disk
        for socket in disk.glob("data/sites/*/keeper-*.sock"):
            socket.unlink()  # the keeper leaves when it is gone; the disk goes with it
        subprocess.run(["umount", "--lazy", str(disk)], check=True)

    @pytest.fixture
    def server_on_small_disk(small_disk: Path, tmp_path: Path) -> Iterator[ServerProcess]:
        made = ServerProcess(small_disk / "data")
        made.log = tmp_path / "server.log"
        made.start()
        yield made
        made.stop()

    def test_a_full_disk_refuses_what_is_new_and_recovers_when_there_is_space(
        server_on_small_disk: ServerProcess, small_disk: Path
    ) -> None:
        server = server_on_small_disk
        server.submit("runs", script="echo begun; sleep 6; echo end", outputs=["nothing"])
        server.submit("waits", script="echo ran", resources={"cpus": str(os.cpu_count())})
        eventually(lambda: server.status("runs")["phase"] == "Running")
        filler = fill(small_disk)
        # What is left in the database's own files may take a few.
        answers = [submit(server, f"refused-{number}", "true " + "x" * 5000) for number in range(20)]
        assert {answer.code for answer in answers[-5:]} == {503}
        assert "space" in answers[-1].object["message"]
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert server.status("runs")["phase"] in ("Running", "Finishing")
        assert server.output("runs").startswith("begun\n")
        content = b"y" * 3_000_000
        assert put(server, content).code == 503
        assert "space" in ask(server, "GET", "/readyz").object["message"]
        assert ask(server, "GET", "/livez").code == 200
        eventually(lambda: server.output("runs").endswith("end\n") or None)  # its output found room in its last block
        assert server.process is not None
        assert server.process.poll() is None
        filler.unlink()
        assert server.finished("runs")["phase"] == "Succeeded"
        assert server.finished("waits")["phase"] == "Succeeded"
        assert put(server, content).code == 200
        server.submit("after", script="echo ran")
        assert server.finished("after")["phase"] == "Succeeded"

    def test_on_a_full_disk_jobs_can_be_cancelled_and_deleted(
        server_on_small_disk: ServerProcess, small_disk: Path
    ) -> None:
        server = server_on_small_disk
        server.submit("over", script="head -c 9000000 /dev/urandom > result", outputs=["result"])
        assert server.finished("over")["phase"] == "Succeeded"
        server.submit("runs", script="echo begun; sleep 600")
        eventually(lambda: server.output("runs") == "begun\n" or None)
        fill(small_disk)
        eventually(lambda: submit(server, "refused", "true " + "x" * 5000).code == 503 or None)
        server.patch("runs", intent="Cancel")
        assert server.finished("runs")["phase"] == "Cancelled"
        for name in ("runs", "over"):
            path = f"{server.jobs()}/{name}"
            assert ask(server, "DELETE", path).code == 200
            eventually(partial(_is_gone, server, path))

    @pytest.fixture
    def tiny_disk(tmp_path: Path) -> Iterator[Path]:
        """A disk of its own, of 12 MiB."""
        disk = tmp_path / "tiny"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "tmpfs", str(disk)], check=True)
        yield disk
        for socket in disk.glob("data/sites/*/keeper-*.sock"):
            socket.unlink()
        subprocess.run(["umount", "--lazy", str(disk)], check=True)

    def test_a_log_that_fills_the_disk_traps_nobody(tiny_disk: Path, tmp_path: Path) -> None:
        server = ServerProcess(tiny_disk / "data")
        server.log = tmp_path / "server.log"
        server.start()
        try:
            server.submit("wordy", script="yes | head -c 20000000; echo over")
            status = server.finished("wordy")
            assert status["phase"] in ("Succeeded", "Failed")
            log = server.output("wordy")
            assert log.startswith("y\ny\n")
            assert "bytes of output were dropped here" in log
            server.submit("next", script="echo ran")
            assert server.finished("next")["phase"] == "Succeeded"
            assert ask(server, "DELETE", f"{server.jobs()}/wordy").code == 200
            eventually(lambda: ask(server, "GET", f"{server.jobs()}/wordy").code == 404 or None)
            assert server.ready()
        finally:
            server.stop()

    def test_a_job_that_fills_the_disk_ends_and_is_told(server_on_small_disk: ServerProcess, small_disk: Path) -> None:
        server = server_on_small_disk
        server.submit("greedy", script="cat /dev/zero > all; sync; exec sleep 600", outputs=["all"])
        eventually(lambda: os.statvfs(small_disk).f_bavail < 2 or None)
        assert ask(server, "GET", "/livez").code == 200
        # Its record of the end has room of its own; the database has none until its files are gone, so the
        # administrator makes some.
        eventually(lambda: list(small_disk.glob("data/sites/local/runs/*/ended")) or None)
        for run in small_disk.glob("data/sites/local/runs/*/work/all"):
            os.truncate(run, 1000)
        status = server.finished("greedy")
        assert (status["phase"], status["reason"]) == ("Failed", "DiskLimit")


def test_a_database_that_another_program_holds_refuses_writes_and_serves_reads(own_server: ServerProcess) -> None:
    server = own_server
    server.start()
    server.submit("runs", script="echo begun; sleep 1; exit 4")
    server.submit("waits", resources={"cpus": str(os.cpu_count())})
    eventually(lambda: server.status("runs")["phase"] == "Running")
    other = sqlite3.connect(server.data / "isthmus.db", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        refused = submit(server, "refused")
        assert refused.code == 503
        assert "locked" in refused.object["message"]
        assert server.status("runs")["phase"] == "Running"
        assert server.ready()
        other.execute("ROLLBACK")
    finally:
        other.close()
    assert server.finished("runs")["exitCode"] == 4
    assert server.finished("waits")["phase"] == "Succeeded"
    server.submit("after")
    assert server.finished("after")["phase"] == "Succeeded"
    assert server.process is not None
    assert server.process.poll() is None
