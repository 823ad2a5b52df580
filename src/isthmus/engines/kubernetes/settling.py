"""How a run ended: its log is copied to the end, what happened is put into words and written down, in this order.

Only then is the end reported to anybody: whoever hears of it finds the whole log, and a control plane that is killed on
the way does the same again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from isthmus._kit.clock import utcnow
from isthmus._kit.crashpoints import reach
from isthmus.engines.base import EndReason, Observation, RunState, Stream
from isthmus.engines.metering import Power, estimate
from isthmus.errors import IsthmusError, NotFound, SiteUnavailable
from isthmus.kubernetes.answers import is_denied
from isthmus.kubernetes.client import KubernetesClient

from . import parsing, pods, records, wrapping
from .executing import execute
from .logs import LogCopies
from .parsing import Pod
from .sampling import Sampler

log = logging.getLogger(__name__)


@dataclass(slots=True)
class KnownPod:
    """What is known of a run."""

    run_id: str
    engine_id: str
    since: float = 0.0
    """When it was last heard of, on the monotonic clock: an older list need not name it."""
    pod: Pod | None = None
    gone: bool = False
    """The API server says that its pod is no longer there."""
    cancelled: bool = False
    has_job: bool = False
    tidied: bool = False
    stuck_since: float | None = None
    final: Observation | None = None

    def observation(self) -> Observation:
        """How it is."""
        return self.final or parsing.going_on(self.pod, self.engine_id)

    @property
    def over(self) -> bool:
        """Whether its program will not run any more, or not again."""
        return self.gone or (self.pod is not None and self.pod.over)


class PodSettler:
    """Settles runs that are over."""

    def __init__(
        self, client: KubernetesClient, logs: LogCopies, sampler: Sampler, pods_path: str, jobs_path: str
    ) -> None:
        self._client, self._logs, self._sampler = client, logs, sampler
        self._pods, self._jobs = pods_path, jobs_path
        self.power: Mapping[str, Power] = {}

    async def settle(self, known: KnownPod, failure: str = "") -> None:
        """Find out how a run ended and write it down; `failure` says why it will never start."""
        seen = known.pod
        complete = True
        if seen is not None and seen.main.started_at is not None:
            complete = await self._copy_logs(known, seen)
        final = self._final(known, failure)
        if not complete and final.reason is not EndReason.CANCELLED:
            reported = f"{final.message}; " if final.message else ""
            final = replace(final, message=f"{reported}the end of its log was lost with the pod")
        reach("settle:copied")
        if known.has_job:
            await self._write(known, final)
        reach("settle:written")
        known.final = final

    @staticmethod
    def barred(known: KnownPod) -> Observation:
        """The end of a run that was cancelled before it came."""
        reported = "cancelled before it began"
        return Observation(RunState.ENDED, known.engine_id, reason=EndReason.CANCELLED, message=reported)

    async def _copy_logs(self, known: KnownPod, seen: Pod) -> bool:
        path = f"{self._pods}/{seen.name}"
        complete = await self._logs.finish(known.run_id, Stream.STDOUT, path, pods.MAIN)
        if pods.ERRORS in seen.names:
            if "code" not in parsing.report(seen.main.message):
                await self._release(path, pods.ERRORS)  # the wrapper was killed: nobody asked the helper
            await self._errors_ended(known)
            complete &= await self._logs.finish(known.run_id, Stream.STDERR, path, pods.ERRORS)
        return complete

    async def _errors_ended(self, known: KnownPod) -> None:
        """The helper prints the last of standard error right after the program's end."""
        for _ in range(200):
            seen = known.pod
            if known.gone or seen is None or seen.phase in ("Succeeded", "Failed"):
                return
            if seen.containers.get(pods.ERRORS, parsing.Container()).state == "terminated":
                return
            await asyncio.sleep(0.05)
        log.warning("standard error was not finished in time", extra={"run": known.run_id})

    async def _release(self, path: str, container: str) -> None:
        try:
            await execute(self._client, path, container, wrapping.release())
        except IsthmusError as error:
            log.info("a helper could not be asked to end", extra={"pod": path, "error": str(error)})

    def _final(self, known: KnownPod, failure: str) -> Observation:
        seen, now = known.pod, utcnow()
        if failure and not known.cancelled:
            reason, message = EndReason.START_FAILED, failure
            return Observation(RunState.ENDED, known.engine_id, ended_at=now, reason=reason, message=message)
        if seen is None:
            if known.cancelled:
                return replace(self.barred(known), ended_at=now)
            reason, message = EndReason.NODE_LOST, "its pod is no longer there"
            return Observation(RunState.ENDED, known.engine_id, ended_at=now, reason=reason, message=message)
        if known.gone and not seen.over:
            seen = replace(seen, deleting=True)
        return self._measured(seen, _in_order(parsing.ended(seen, known.engine_id, cancelled=known.cancelled), now))

    def _measured(self, seen: Pod, final: Observation) -> Observation:
        elapsed = None
        if final.started_at is not None and final.ended_at is not None:
            elapsed = (final.ended_at - final.started_at).total_seconds()
        usage = self._sampler.completed(seen.run_id, final.usage, elapsed)
        final = replace(final, usage=usage)
        if usage is None or usage.elapsed_seconds is None:
            return final
        units = {name: ("",) * count for name, count in seen.devices.items()}
        joules = estimate(self.power, units, seen.milli_cpus / 1000, usage.elapsed_seconds, usage.cpu_seconds or 0.0)
        if joules is None:
            return final
        return replace(final, usage=replace(usage, energy_joules=joules, energy_source="estimated"))

    async def _write(self, known: KnownPod, final: Observation) -> None:
        change: dict[str, object] = {"metadata": {"annotations": {pods.FINAL: records.dump(final)}}}
        if known.pod is None or known.gone or not known.pod.over:
            change["spec"] = {"parallelism": 0}  # no pod is to follow
        try:
            await self._client.patch(f"{self._jobs}/{pods.name_of(known.run_id)}", change)
        except NotFound:
            log.warning("the Job of a run was deleted at the cluster", extra={"run": known.run_id})

    async def until_settled(self, known: KnownPod, failure: str = "") -> None:
        """Settle; try again for as long as the cluster does not answer."""
        pause = 0.25
        while known.final is None:
            try:
                await self.settle(known, failure)
            except SiteUnavailable as error:
                if known.gone and is_denied(error):
                    # Its namespace was deleted, and our rights there with it: nothing is left to be read or written.
                    log.warning("a run went with its namespace", extra={"run": known.run_id, "error": str(error)})
                    known.final = self._final(known, failure)
                    return
                log.warning("a run could not be settled", extra={"run": known.run_id, "error": str(error)})
                await asyncio.sleep(error.retry_after or pause)
                pause = min(30.0, pause * 2)


def _in_order(final: Observation, now: datetime) -> Observation:
    """Every end has a time, and none lies before its start."""
    ended = final.ended_at or now
    if final.started_at is not None:
        ended = max(ended, final.started_at)
    return replace(final, ended_at=ended)
