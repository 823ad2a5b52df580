"""Local jobs have a network of their own: outwards it leads, the machine's loopback and ports are out of reach."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from isthmus.engines.base import Run
from isthmus.engines.local.driver import SHARED_NETWORK, LocalEngine
from isthmus.engines.local.networking import NAMESERVER, resolver_lines
from isthmus.errors import Misconfigured, SiteUnavailable
from isthmus.testing.engines import new_run_id, until, wait_ended, whole_log

from .conftest import ACCOUNT, IS_ROOT, MakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.real]


async def output(engine: LocalEngine, script: str) -> str:
    run = Run(new_run_id(), "n", "j", ("python3", "-c", script), account=ACCOUNT)
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert end.exit_code == 0, (end, await whole_log(engine, run.id))
    return (await whole_log(engine, run.id)).decode()


def outward_address() -> str:
    """An address of this machine that is not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the programs of a sandbox, and without slirp4netns."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("bwrap", "setpriv"):
        (folder / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
    return folder


if IS_ROOT:  # /dev/net/tun may be closed to others; test_unprivileged.py opens it to them

    async def test_a_job_takes_no_port_of_the_machine_and_reaches_others(engine: LocalEngine) -> None:
        with socket.create_server(("127.0.0.1", 0)) as inner, socket.create_server(("0.0.0.0", 0)) as outer:
            script = f"""
import socket
port = {inner.getsockname()[1]}
with socket.socket() as s:
    print(s.connect_ex(("127.0.0.1", port)) != 0, s.connect_ex(("10.0.2.2", port)) != 0)
with socket.create_server(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
    print("mine")
with socket.create_connection(("{outward_address()}", {outer.getsockname()[1]}), 10) as s:
    s.sendall(b"from the job")
"""
            assert await output(engine, script) == "True True\nmine\n"
            outer.settimeout(10)
            connection, _ = outer.accept()
            with connection:
                assert connection.recv(100) == b"from the job"
        assert (await engine.probe([])).features["network"] == "each job's own (slirp4netns)"

    async def test_the_network_ends_with_the_job_and_with_its_supervisor(engine: LocalEngine) -> None:
        run = Run(new_run_id(), "n", "j", ("sleep", "600"), account=ACCOUNT)
        seen = await engine.submit(run)
        supervisor = int(seen.engine_id)
        network = _networks(supervisor)
        assert network
        os.kill(supervisor, 9)
        await wait_ended(engine, run.id)
        await until(lambda: _gone(network), "the end of its network")

    async def test_a_job_that_is_asked_to_end_still_has_its_network(engine: LocalEngine) -> None:
        with socket.create_server(("0.0.0.0", 0)) as server:
            script = f"""
import signal, socket, sys, time
def last_word(*_):
    socket.create_connection(("{outward_address()}", {server.getsockname()[1]}), 5).sendall(b"bye")
    sys.exit(0)
signal.signal(signal.SIGTERM, last_word)
print("ready", flush=True)
time.sleep(60)
"""
            run = Run(new_run_id(), "n", "j", ("python3", "-c", script), account=ACCOUNT)
            await engine.submit(run)
            while b"ready" not in await whole_log(engine, run.id):
                await engine.wait_log(run.id, "stdout", 0, 1.0)
            await engine.cancel(run.id, grace=30)
            await wait_ended(engine, run.id)
            server.settimeout(10)
            with server.accept()[0] as connection:
                assert connection.recv(10) == b"bye"

    async def test_without_its_network_a_job_does_not_begin_and_is_tried_again(
        make_engine: MakeEngine, programs: Path, tmp_path: Path
    ) -> None:
        broken = tmp_path / "broken"
        real = shutil.which("slirp4netns") or "/usr/bin/slirp4netns"
        (programs / "slirp4netns").write_text(f'#!/bin/sh\n[ -e {broken} ] && exit 1\nexec {real} "$@"\n')
        (programs / "slirp4netns").chmod(0o755)
        engine = await make_engine(programs=str(programs), network="Private")
        broken.touch()
        run = Run(new_run_id(), "n", "j", ("echo", "ran"), account=ACCOUNT)
        with pytest.raises(SiteUnavailable, match="slirp4netns did not connect"):
            await engine.submit(run)
        assert await engine.observe(run.id) is None
        broken.unlink()
        await engine.submit(run)
        assert (await wait_ended(engine, run.id)).exit_code == 0
        assert await whole_log(engine, run.id) == b"ran\n"


async def _gone(pids: list[int]) -> bool:
    """Whether nothing is left of them, not even what waits to be buried."""
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def _networks(supervisor: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(supervisor)], capture_output=True, check=True)
    return [int(line.split()[0]) for line in found.stdout.decode().splitlines() if "slirp4netns" in line]


async def test_where_there_is_no_slirp4netns_the_site_says_so(make_engine: MakeEngine, programs: Path) -> None:
    engine = await make_engine(programs=str(programs))
    reported = (await engine.probe([])).features["network"]
    assert reported.startswith(SHARED_NETWORK)
    assert "apt install slirp4netns" in reported
    with pytest.raises(Misconfigured, match="network of their own"):
        await make_engine(programs=str(programs), network="Private")


async def test_the_network_of_the_machine_can_be_chosen(make_engine: MakeEngine) -> None:
    engine = await make_engine(network="Host")
    assert (await engine.probe([])).features["network"] == SHARED_NETWORK
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = f'import socket; socket.create_connection(("127.0.0.1", {server.getsockname()[1]}))'
        assert await output(engine, script) == ""


def test_a_resolver_on_loopback_is_replaced() -> None:
    assert resolver_lines("nameserver 10.1.1.1\n") is None
    assert resolver_lines("# by systemd\nnameserver 127.0.0.53\noptions edns0\nsearch a.b\n") == (
        f"options edns0\nsearch a.b\nnameserver {NAMESERVER}\n"
    )
