"""Agents: what starting through one costs, and what 200 of them cost the control plane."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from isthmus.agent.connecting import Connector
from isthmus.agent.places import Membership
from isthmus.engines.agent.linking import AgentCall
from isthmus.engines.agent.proving import mark_of, new_key
from isthmus.testing.agent_processes import AgentMachine
from isthmus.testing.servers import GROUP, ServerProcess, eventually

from .report import Figure, Section
from .running import accepted_to_started, at_share
from .servers import Server

AGENTS = 200
_TICKS = os.sysconf("SC_CLK_TCK")


def run(seconds: int) -> Section:
    section = Section(
        "Agents",
        "Through an agent on this machine, jobs that start at once, beside the same at the local site. Then "
        f"{AGENTS} agents, all connections of one process that answers for empty machines, beside a server that is "
        "otherwise idle: what they cost it, and how long it takes until all are back after it was stopped and started "
        "again; meanwhile somebody lists jobs, over and over, from when it answers.",
    )
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        Path(folder).chmod(0o711)
        server = ServerProcess(Path(folder) / "control")
        server.start()
        try:
            _starts(section, server, Path(folder), max(20, seconds * 8))
            asyncio.run(_many(section, server, max(10.0, seconds * 3.0)))
        finally:
            server.stop()
    return section


def _starts(section: Section, server: ServerProcess, folder: Path, count: int) -> None:
    machine = AgentMachine(folder / "machine")
    _join(server, machine)
    machine.start()
    try:
        eventually(lambda: _phase(server, "desk") == "Ready")
        found = {}
        for site in ("local", "desk"):
            for other in ("local", "desk"):
                path, body = f"{GROUP}/sites/{other}", {"spec": {"enabled": other == site}}
                server.request(path, body, method="PATCH")
            eventually(lambda site=site: _phase(server, site) == "Ready")  # type: ignore[misc]
            found[site] = at_share(accepted_to_started(_as_server(server), count, site), 0.5)
    finally:
        machine.clean()
    more = found["desk"] - found["local"]
    reported = f"p50 {found['desk']:.1f} ms"
    section.add(
        Figure("accepted to started", reported, f"local {found['local']:.1f} ms", None, "+10 ms at most", more <= 10)
    )


def _as_server(server: ServerProcess) -> Server:
    assert server.process is not None
    return Server(server.url, server.token, server.data, server.process)


def _join(server: ServerProcess, machine: AgentMachine) -> None:
    private, public = new_key()
    machine.place.make()
    _make_site(server, "desk", public, machine.place.machine(new=True))
    machine.place.keep(_membership(server, "desk"), private)


def _membership(server: ServerProcess, site: str) -> Membership:
    return Membership(f"https://127.0.0.1:{server.port}", site, (server.data / "tls" / "ca.pem").read_text())


def _make_site(server: ServerProcess, name: str, key: str, machine: str) -> None:
    spec = {"driver": "agent", "agent": {"key": key, "machine": machine}}
    site = {"apiVersion": "isthmus.dev/v1", "kind": "Site", "metadata": {"name": name}, "spec": spec}
    server.request(f"{GROUP}/sites", site)


def _phase(server: ServerProcess, site: str) -> str:
    return str((server.request(f"{GROUP}/sites/{site}").get("status") or {}).get("phase"))


async def _many(section: Section, server: ServerProcess, seconds: float) -> None:
    before = _memory(server)
    keys = [new_key() for _ in range(AGENTS)]
    connectors = []
    for number, (private, public) in enumerate(keys):
        name, machine = f"many-{number}", mark_of("bench", str(number))
        await asyncio.to_thread(_make_site, server, name, public, machine)
        connectors.append(Connector(_membership(server, name), private, machine, _answer, _settle))
    async with _running(connectors):
        await _all_back(connectors)
        await asyncio.sleep(seconds)  # every site is looked at
        each = (_memory(server) - before) / AGENTS
        used = _cpu(server)
        await asyncio.sleep(seconds)
        share = (_cpu(server) - used) / seconds
        section.add(Figure(f"{AGENTS} idle, of a core", f"{share:.1%}", "", None, "< 5 %", share < 0.05))
        section.add(Figure("memory of each", f"{each:.2f} MB", "", None, "< 1 MB", each < 1))
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        began, errors = time.monotonic(), 0
        back = asyncio.create_task(_all_back(connectors))
        while not back.done():
            try:
                await asyncio.to_thread(server.request, server.jobs())
            except OSError:
                errors += 1
            await asyncio.sleep(0.05)
        took = time.monotonic() - began
        reported = f"{took:.1f} s, {errors} errors"
        section.add(
            Figure(f"{AGENTS} back after a restart", reported, "", None, "10 s, no errors", took < 10 and not errors)
        )


@contextlib.asynccontextmanager
async def _running(connectors: list[Connector]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one.run()) for one in connectors]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _all_back(connectors: list[Connector]) -> None:
    for one in connectors:
        await one.connected.wait()


async def _answer(call: AgentCall) -> None:
    """For an empty machine."""
    if call.head.get("call") == "probe":
        call.finish({"version": "1", "capacity": {"cpus": 1, "memoryBytes": 2**30}, "node": "bench"})
    elif call.head.get("call") == "changes":
        await call.send(b"[]\n")
        await asyncio.Event().wait()
    else:
        call.finish({"known": False})


async def _settle() -> None:
    """Nothing was asked for."""


def _cpu(server: ServerProcess) -> float:
    assert server.process is not None
    words = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


def _memory(server: ServerProcess) -> float:
    """Megabytes that are the process's own."""
    assert server.process is not None
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1000
