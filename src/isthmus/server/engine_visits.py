"""Ways into jobs that run, through the engines that are open here."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.engines.base import ExecEngine, Execution, PortEngine, PortStream, TerminalSize
from isthmus.errors import EngineRefused, NotFound
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Job


class EngineVisits:
    """Asks the engine of the site where a job runs."""

    def __init__(self, engines: EngineRegistry) -> None:
        self._engines = engines

    async def connect(self, job: Job, port: int) -> PortStream:
        """To a port of the job's present attempt."""
        engine: object = self._engine(job)
        if not isinstance(engine, PortEngine):
            raise EngineRefused(
                f"site {job.status.site} does not lead to ports of its jobs; run the job at a local site"
            )
        return await engine.connect(job.run_id, port)

    async def execute(self, job: Job, command: Sequence[str], terminal: TerminalSize | None) -> Execution:
        """With a command, beside the job's present attempt."""
        engine: object = self._engine(job)
        if not isinstance(engine, ExecEngine):
            raise EngineRefused(f"site {job.status.site} runs no commands beside its jobs; run the job at a local site")
        return await engine.execute(job.run_id, command, terminal)

    def _engine(self, job: Job) -> object:
        if job.status.phase is not JobPhase.RUNNING:
            state = job.status.phase.value
            raise NotFound(f"job {job.name} does not run now (it is {state}); wait until isthmus jobs shows it Running")
        return self._engines.of(job.status.site)
