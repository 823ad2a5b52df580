"""What is asked of Slurm, whichever way it is reached, and the budget that all questions are held to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from isthmus._kit.children import Ready
from isthmus.engines.slurm.batch.submissions import Submission
from isthmus.engines.slurm.facts import Accounted, SiteFacts, SlurmJob, SlurmNode, SlurmPartition
from isthmus.errors import EngineRefused, SiteUnavailable

# What Slurm says when it could not be asked, or was not sure. Anything else that it says is its answer.
_UNSURE = (
    "unable to contact", "socket timed out", "timed out", "zero bytes were transmitted", "connection refused",
    "connection reset", "connection timed out", "communication connection failure", "communications",
    "temporarily unable", "temporarily unavailable", "try again", "backup controller", "standby mode",
    "unexpected message",
    "slurm_persist_conn", "slurmdbd", "no route to host", "network is unreachable", "protocol authentication error",
    # A job that another shall wait for was forgotten meanwhile: how it ended will be known soon.
    "job dependency problem",
    "munge", "message receive failure", "message send failure", "insane message length", "can't find an address",
)  # fmt: skip


class SlurmTransport(Protocol):
    """Slurm. Every call raises SiteUnavailable when it was not answered: then nothing is known."""

    async def open(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def jobs(self) -> list[SlurmJob]:
        """All jobs, of everybody, with those that ended lately."""
        ...

    async def job(self, number: int) -> SlurmJob | None:
        """One job; None: Slurm answered, and there is none."""
        ...

    async def some(self, numbers: Sequence[int], user: str = "") -> list[SlurmJob]:
        """These jobs, as far as slurmctld has them; `user`: whose they all are, if that is one account."""
        ...

    async def submit(self, wanted: Submission, ready: Ready | None = None) -> int:
        """Submit, once, and answer the job's number; raises EngineRefused.

        Slurm hears nothing of it before `ready` is done, and never if that raises; what it raises is raised.
        """
        ...

    async def cancel(self, number: int, user: str) -> None:
        """Ask for the end of a job; one that is over or unknown is no error."""
        ...

    async def hold(self, number: int, user: str, held: bool) -> None:
        """Hold a job that waits, or let it go; one that has begun, is over or unknown is no error."""
        ...

    async def groups(self, user: str) -> frozenset[str] | None:
        """The groups of an account on the cluster; None where that cannot be known."""
        ...

    async def accounted(self, numbers: Sequence[int], since: datetime) -> list[Accounted]:
        """These jobs as the accounting has them."""
        ...

    async def search_accounting(self, users: Sequence[str], since: datetime) -> list[Accounted]:
        """Every job of these accounts that was there since a moment, without its steps. Others may be among them."""
        ...

    async def nodes(self) -> list[SlurmNode]:
        """All nodes: what Slurm says of a single one may be old."""
        ...

    async def partitions(self) -> list[SlurmPartition]:
        """All partitions."""
        ...

    async def facts(self) -> SiteFacts:
        """How it is configured."""
        ...


SUBMISSION = "sbatch"
"""What a submission is called where it fails, whichever way it was sent."""


def failure(what: str, said: str) -> EngineRefused | SiteUnavailable:
    """What an error text of Slurm's means: its answer is no, or there was no answer."""
    lines = (" ".join(line.split()) for line in said.splitlines())
    text = "; ".join(filter(None, lines))[:500] or "no reason given"
    if any(sign in text.lower() for sign in _UNSURE):
        return SiteUnavailable(f"Slurm did not answer ({what}): {text}")
    return EngineRefused(f"Slurm rejected the job: {text}" if what == SUBMISSION else f"Slurm refused {what}: {text}")


class Budget:
    """So many calls per second in the long run, so many at once; more have to wait, and it is reported."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._rate, self._burst = per_second, max(1.0, burst)
        self._tokens, self._filled = self._burst, time.monotonic()
        self._lock = asyncio.Lock()
        self.calls = 0
        """Made so far."""
        self.waited = 0.0
        """Seconds that calls were held back, in all."""

    async def take(self, *, at_once: bool = False) -> None:
        """Wait until one more call may be made; `at_once`: count it, and let the others wait."""
        if at_once:
            self._tokens -= 1
            self.calls += 1
            return
        async with self._lock:
            now = time.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
            self._filled = now
            if self._tokens < 1:
                pause = (1 - self._tokens) / self._rate
                self.waited += pause
                await asyncio.sleep(pause)
                self._tokens += pause * self._rate
                self._filled = time.monotonic()
            self._tokens -= 1
            self.calls += 1

    def reported(self) -> str:
        """For people."""
        held = f"; calls were held back {self.waited:.1f} s in all" if self.waited else ""
        return f"{self._rate:g} calls per second{held}"
