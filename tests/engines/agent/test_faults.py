"""Cut links, killed agents and second machines: nothing is lost, nothing runs twice, nothing is concluded."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from isthmus.engines.agent.contacts import AgentHub
from isthmus.engines.agent.driver import AgentEngine
from isthmus.engines.agent.proving import AgentIdentity
from isthmus.engines.agent.settings import AgentSettings
from isthmus.engines.base import Account, EndReason, Observation, Run, RunState
from isthmus.errors import IsthmusError, SiteUnavailable
from isthmus.testing.agent_processes import AgentProcess, Relay, connected, listening
from isthmus.testing.engines import FolderSource, MemorySink, new_run_id, until, wait_ended, whole_log
from isthmus.testing.servers import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.real]
ACCOUNT = Account(uid=261_004)


class Edge:
    """An agent behind a cable that can be cut, and the control plane's engine for it."""

    def __init__(self, agent: AgentProcess, hub: AgentHub, relay: Relay, engine: AgentEngine) -> None:
        self.agent, self.hub, self.relay, self.engine = agent, hub, relay, engine
        self.executions = agent.place.data.parent / "executions"
        self.executions.mkdir(exist_ok=True)
        self.executions.chmod(0o777)

    def counting(self, script: str = "", **fields: object) -> Run:
        """A run that leaves a mark outside of Isthmus each time that it is executed."""
        run_id = new_run_id()
        mark = f"mktemp {self.executions}/{run_id}.XXXXXX >/dev/null; "
        return Run(
            run_id, "contract", "job", command=("/bin/sh", "-c", mark + script), account=ACCOUNT, **fields,  # type: ignore[arg-type]
        )  # fmt: skip

    def executed(self, run: Run) -> int:
        """How often it was."""
        return len(list(self.executions.glob(f"{run.id}.*")))

    async def back(self) -> None:
        """Wait until the agent is connected."""
        await connected(self.hub, self.agent.site)

    async def insist(self, work: Callable[[], Awaitable[object]]) -> object:
        """Ask again until there is an answer, as the reconciler does."""

        why = []

        async def attempt() -> object:
            try:
                return (await work(),)
            except SiteUnavailable as error:
                why.append(error.message)
                return None

        try:
            (answer,) = await until(attempt, "an answer of the agent")
        except AssertionError:
            raise AssertionError(f"no answer of the agent: {sorted(set(why))[-3:]}") from None
        return answer


@pytest.fixture(scope="module")
def outside() -> Iterator[Path]:
    """A folder that other accounts can pass through to, which pytest's own is not."""
    folder = Path(tempfile.mkdtemp(prefix="isthmus-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def edge_agent(outside: Path) -> Iterator[AgentProcess]:
    agent = AgentProcess(outside / "data")
    agent.place.rules.write_text('isolation = "None"\n')
    agent.start()
    yield agent
    agent.clean()


@pytest.fixture
async def edge(edge_agent: AgentProcess, tmp_path: Path) -> AsyncIterator[Edge]:
    agent, port = edge_agent, free_port()
    hub, relay = AgentHub({agent.site: agent.identity}.get), Relay(agent.port, port)
    async with listening(hub, agent.tls, port):
        await relay.start()
        engine = AgentEngine(AgentSettings(agent.site, tmp_path / "here", call_seconds=10.0), hub.contact(agent.site))
        await engine.open()
        await connected(hub, agent.site)
        yield Edge(agent, hub, relay, engine)
        await engine.close()
        await relay.close()


async def test_a_link_that_breaks_anywhere_in_a_job_costs_nothing(edge: Edge, tmp_path: Path) -> None:
    """The cable breaks after so many bytes of the agent's answers, wherever that is; the job runs once, whole."""
    source = FolderSource(tmp_path / "source", {"in": b"seven" * 20_000})
    for allowance in (1, 40, 120, 400, 1500, 4000, 9000, 20_000):
        run = edge.counting("mkdir out; cat in in >out/twice; echo done")
        edge.relay.allowance = allowance
        await edge.insist(lambda run=run: edge.engine.submit(run, source))  # type: ignore[misc]

        async def over(run: Run = run) -> Observation | None:
            seen = await edge.insist(lambda: edge.engine.observe(run.id))
            return seen if isinstance(seen, Observation) and seen.state is RunState.ENDED else None

        end = await until(over, "the end of the run")
        assert (end.reason, end.exit_code) == (EndReason.COMPLETED, 0)
        sink = MemorySink()
        assert await edge.insist(lambda run=run, sink=sink: edge.engine.collect(run.id, ["out/*"], sink)) == []  # type: ignore[misc]
        assert sink.files == {"out/twice": b"seven" * 40_000}
        assert await edge.insist(lambda run=run: whole_log(edge.engine, run.id)) == b"done\n"  # type: ignore[misc]
        assert edge.executed(run) == 1
    edge.relay.allowance = None
    assert edge.hub.contact(edge.agent.site).connections > 3, "the cable was broken again and again"


async def test_what_runs_goes_on_while_the_link_is_down_and_is_reported_afterwards(edge: Edge) -> None:
    gate = edge.executions / "gate"
    run = edge.counting(f"echo begun; while [ ! -e {gate} ]; do sleep 0.05; done; echo ended; exit 3")
    changes = edge.engine.changes()
    await edge.engine.submit(run)
    await edge.back()
    edge.relay.cut()
    async with asyncio.timeout(60):
        while edge.hub.contact(edge.agent.site).link is not None:  # nobody is notified: silence is found out
            await edge.hub.contact(edge.agent.site).changed.wait()
    with pytest.raises(SiteUnavailable, match="was last heard"):
        await edge.engine.observe(run.id)
    with pytest.raises(SiteUnavailable, match="goes on"):
        await edge.engine.submit(edge.counting())
    gate.touch()
    ended = edge.agent.place.runs / "runs" / run.id / "ended"

    async def is_over() -> bool:
        return ended.exists()

    await until(is_over, "the end of the run, on its machine")
    edge.relay.mend()
    async with asyncio.timeout(60):
        async for ids in changes:
            if run.id in ids and edge.hub.contact(edge.agent.site).link is not None:
                break
    end = await edge.engine.observe(run.id)
    assert end is not None
    assert (end.state, end.exit_code) == (RunState.ENDED, 3)
    assert await whole_log(edge.engine, run.id) == b"begun\nended\n"
    assert edge.executed(run) == 1


async def test_a_killed_agent_finds_its_runs_again(edge: Edge) -> None:
    run = edge.counting("trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done")
    await edge.engine.submit(run)
    for _ in range(2):
        edge.agent.kill()
        edge.agent.start()
        seen = await edge.insist(lambda: edge.engine.submit(run))
        assert isinstance(seen, Observation)
        assert seen.state is RunState.RUNNING
    await edge.engine.cancel(run.id, grace=30)
    assert (await wait_ended(edge.engine, run.id)).exit_code == 4
    assert edge.executed(run) == 1


async def test_a_second_machine_with_the_same_key_is_refused_and_reported(edge: Edge, tmp_path: Path) -> None:
    await edge.back()
    contact = edge.hub.contact(edge.agent.site)
    first = contact.link
    twin = AgentProcess(tmp_path / "twin", edge.agent.site, port=edge.agent.port)
    shutil.copy(edge.agent.place.data / "agent.key", twin.place.data / "agent.key")
    shutil.copy(edge.agent.place.data / "agent.json", twin.place.data / "agent.json")
    twin.start()
    try:

        async def refused() -> bool:
            return contact.refusal is not None and "another machine" in contact.refusal.why

        await until(refused, "the key on another machine to be refused")
        twin.kill()
        shutil.copy(edge.agent.place.runs / "machine", twin.place.runs / "machine")  # a copy of the whole disk
        twin.start()

        async def refused_too() -> bool:
            return contact.refusal is not None and "is connected from" in contact.refusal.why

        await until(refused_too, "a second machine beside the first to be refused")
    finally:
        await asyncio.to_thread(twin.clean)
    assert contact.link is first, "the first stays connected"
    report = edge.engine.contact()
    assert report.refused is not None
    assert "same key" in report.refused


async def test_a_revoked_agent_is_cut_off_at_once(edge_agent: AgentProcess) -> None:
    agent = edge_agent
    known: dict[str, AgentIdentity] = {agent.site: agent.identity}
    hub = AgentHub(known.get)
    async with listening(hub, agent.tls, agent.port):
        await connected(hub, agent.site)
        contact = hub.contact(agent.site)
        known.clear()
        hub.changed(agent.site)
        async with asyncio.timeout(10):
            while contact.link is not None:
                await contact.changed.wait()
        connections = contact.connections

        async def informed() -> bool:
            return "unknown or revoked" in agent.log.read_text()

        await until(informed, "the agent to hear why")
        assert contact.connections == connections
        known[agent.site] = agent.identity
        await connected(hub, agent.site)


async def test_rules_of_the_owner_are_kept_whatever_the_control_plane_says(edge: Edge) -> None:
    mine = Run(new_run_id(), "contract", "job", command=("true",), account=Account(uid=os.getuid() or 1))
    if os.geteuid() == 0:
        with pytest.raises(IsthmusError, match="account of this machine"):
            await edge.engine.submit(mine)
        with pytest.raises(IsthmusError, match="does not permit jobs under the account"):
            await edge.engine.submit(
                Run(new_run_id(), "contract", "job", command=("true",), account=Account(user="daemon"))
            )
    assert await edge.engine.observe(mine.id) is None
