"""What runs images on the nodes of a site, as each account finds it there.

Login and compute nodes differ, so that it is looked for on a node (`images/runtimes/probing`): by a small job of the
person whose run needs it, and again after a day. Until then it is not known, and nothing is refused.

What that job writes is the person's to write. So an answer counts for the account that gave it and for nobody else: it
neither refuses others' runs nor chooses what they are run by, and what it says is shown to others only as names of our
own list. Where everybody has the same account, its answer is that of the site.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import FileSource, Observation, Run, RunState, Stream
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.errors import IsthmusError, SiteUnavailable
from isthmus.images.runtimes import RUNTIMES, probing
from isthmus.images.runtimes.probing import NodeProbe
from isthmus.resources.work.engine_options import SlurmOptions

PROBE_JOB = "isthmus-images"
_KNOWN_SECONDS = 24 * 3600.0
"""How long what was found on a node is believed."""
_WAIT_SECONDS = 10.0
"""How long a run waits for the answer before it is tried again later."""
_LOOK_SECONDS = 0.2
_GIVEN_UP_SECONDS = 3600.0
"""After this long a job that looks for runtimes and still waits in the queue is cancelled."""


class Runs(Protocol):
    """The part of the engine that the job which looks around needs."""

    async def submit(self, run: Run, files: FileSource | None = None) -> Observation: ...  # noqa: D102
    async def observe(self, run_id: str) -> Observation | None: ...  # noqa: D102
    async def cancel(self, run_id: str) -> None: ...  # noqa: D102
    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes: ...  # noqa: D102
    async def forget(self, run_id: str) -> None: ...  # noqa: D102
    def records(self) -> Mapping[str, RunRecord | None]: ...  # noqa: D102


@dataclass(slots=True)
class _RuntimesFound:
    """What one account has found."""

    probe: NodeProbe | None = None
    probed_at: float = 0.0
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while nobody is looking."""
    why: str = ""

    def __post_init__(self) -> None:
        self.looked.set()

    @property
    def current(self) -> NodeProbe | None:
        """What is believed."""
        return self.probe if self.probe is not None and time.monotonic() - self.probed_at <= _KNOWN_SECONDS else None

    @property
    def none(self) -> str:
        """Why no images can be run; empty if they can, or it is not known."""
        probe = self.current
        return probing.no_runtime(probe) if probe is not None and not probe.usable else ""


class RuntimeSearch:
    """Looks for runtimes, for each account."""

    def __init__(self, settings: SlurmSettings, runs: Runs, tasks: SupervisedTasks) -> None:
        self._wanted, self._everybody = settings.image_runtimes, settings.only_account
        self._runs, self._tasks = runs, tasks
        self._answers: dict[str, _RuntimesFound] = {}
        self._looking: set[str] = set()

    def none(self, user: str | None = None) -> str:
        """Why no images are run here for an account, or for anybody; empty if they are, or it is not known."""
        if not self._wanted:
            return "the site's settings name no container runtime (slurm.images.runtimes)"
        answer = self._answers.get(user or self._everybody or "")
        return answer.none if answer is not None else ""

    def describe(self) -> Mapping[str, str]:
        """What `isthmus site` shows."""
        if not self._wanted:
            return {"images": f"none: {self.none()}"}
        looked = f"by one of {', '.join(self._wanted)}; the first job with an image finds out which its nodes have"
        if self._everybody is not None:
            answer = self._answers.get(self._everybody, _RuntimesFound())
            if answer.probe is not None:
                return probing.describe(answer.probe, RUNTIMES)
            return {"images": f"{looked} ({answer.why})" if answer.why else looked}
        probes = [answer.probe for answer in self._answers.values() if answer.probe is not None]
        if not probes:
            return {"images": f"{looked}, for each account"}
        works = Counter(name for probe in probes for name in probe.usable)
        seen = ", ".join(f"{name} for {works[name]}" for name in self._wanted if works[name]) or "none"
        return {"images": f"{seen} of {len(probes)} accounts that looked; each finds out for itself"}

    async def find(self, run: Run, user: str) -> NodeProbe:
        """What runs images for an account; raises SiteUnavailable while that is not known."""
        answer = self._answers.setdefault(user, _RuntimesFound())
        if answer.current is None:
            if answer.looked.is_set():
                answer.looked.clear()
                self._tasks.spawn("slurm-image-probe", partial(self._look, answer, run), of=user)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(answer.looked.wait(), _WAIT_SECONDS)
        if (probe := answer.current) is None:
            why = f" ({answer.why})" if answer.why else ""
            raise SiteUnavailable(f"It is being found out what runs images on the nodes of this site{why}.")
        return probe

    async def _look(self, answer: _RuntimesFound, run: Run) -> None:
        run_id = f"{PROBE_JOB}-{secrets.token_hex(8)}.1"
        self._looking.add(run_id)
        try:
            await self._ask_node(answer, run, run_id)
        finally:
            self._looking.discard(run_id)
            answer.looked.set()

    async def _ask_node(self, answer: _RuntimesFound, run: Run, run_id: str) -> None:
        """Send a job that looks around, as the person and to where the run would go, and read what it wrote."""
        runtimes = [RUNTIMES[name] for name in self._wanted]
        asks = run.section(SlurmOptions)
        options = SlurmOptions(
            partition=asks.partition, account=asks.account, qos=asks.qos, reservation=asks.reservation,
            constraint=asks.constraint,
        )  # fmt: skip
        looking = Run(
            run_id,
            run.namespace,
            PROBE_JOB,
            ("/bin/sh", "-c", probing.script(runtimes)),
            member=run.member,
            milli_cpus=min(1000, run.milli_cpus),
            time_limit=120.0,
            options=(options,),
        )
        try:
            await self._clear_up()
            await self._runs.submit(looking)
            text = await self._said(answer, run_id)
            found = probing.parse(text, runtimes)
        except IsthmusError as error:
            answer.why = f"the job that looks for it: {error.message}"
            return
        if found is None:
            answer.why = "the job that looks for it wrote nothing that could be read"
            return
        answer.probe, answer.probed_at, answer.why = found, time.monotonic(), ""
        if not found.usable:
            answer.why = probing.no_runtime(found)

    async def _clear_up(self) -> None:
        """End what a control plane that was killed had begun to find out."""
        begun = [run_id for run_id in self._runs.records() if run_id.startswith(PROBE_JOB)]
        for old in [run_id for run_id in begun if run_id not in self._looking]:
            seen = await self._runs.observe(old)
            if seen is not None and seen.state is RunState.ENDED:
                await self._runs.forget(old)
            else:
                await self._runs.cancel(old)

    async def _said(self, answer: _RuntimesFound, run_id: str) -> str:
        until = time.monotonic() + _GIVEN_UP_SECONDS
        while True:
            seen = await self._runs.observe(run_id)
            if seen is not None and seen.state is RunState.ENDED:
                break
            if time.monotonic() > until:
                await self._runs.cancel(run_id)
                until = float("inf")
            answer.why = f"job {seen.engine_id} looks for it" if seen is not None else answer.why
            await asyncio.sleep(_LOOK_SECONDS)
        text = (await self._runs.read_log(run_id, Stream.STDOUT, 0, 1 << 16)).decode(errors="replace")
        await self._runs.forget(run_id)
        return text
