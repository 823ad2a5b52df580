"""Slurm's commands: each a small class with its words and a typed reader of what it writes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from isthmus.engines.slurm.batch.submissions import Submission, sbatch
from isthmus.engines.slurm.facts import Accounted, SiteFacts, SlurmJob, SlurmNode, SlurmPartition
from isthmus.errors import EngineRefused, SiteUnavailable

from . import parsing
from .base import SUBMISSION, failure

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_OVER = ("invalid job id", "already completing or completed", "job/step already completed")
_NOT_WAITING = (*_OVER, "job is no longer pending", "already started", "requested operation is presently disabled")


@dataclass(frozen=True, slots=True)
class Done:
    """What a command that ended left."""

    code: int
    out: str = ""
    err: str = ""


class Command(Protocol, Generic[T_co]):
    """One command."""

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        ...

    def read(self, done: Done) -> T_co:
        """What it answered; raises SiteUnavailable, EngineRefused."""
        ...


def _fence() -> str:
    return secrets.token_hex(8)


def _check(what: str, done: Done) -> None:
    if done.code:
        error = failure(what, done.err or done.out)
        # A query that is refused counts as unanswered; only submissions are refused.
        raise error if isinstance(error, SiteUnavailable) else SiteUnavailable(error.message)


@dataclass(frozen=True, slots=True)
class Squeue:
    """squeue: every job, with those that ended lately."""

    fence: str = field(default_factory=_fence)

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return ["squeue", "--all", "--states=all", f"--format={self.fence}|{parsing.JOB_FORMAT}"]

    def read(self, done: Done) -> list[SlurmJob]:
        """The jobs. An answer without even a heading is no answer."""
        _check("squeue", done)
        try:
            return parsing.jobs(done.out, self.fence)
        except ValueError as error:
            raise SiteUnavailable(f"Slurm's answer cannot be used: {error}") from None


@dataclass(frozen=True, slots=True)
class ListSomeJobs:
    """squeue: some jobs. Of a single one, or of those of a single account, slurmctld need not look at all."""

    numbers: Sequence[int]
    user: str = ""
    """Whose they all are; none: of several."""
    fence: str = field(default_factory=_fence)

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        listed = ",".join(str(number) for number in self.numbers)
        of = [f"--user={self.user}"] if self.user and len(self.numbers) > 1 else []
        return [
            "squeue",
            "--all",
            "--states=all",
            f"--jobs={listed}",
            *of,
            f"--format={self.fence}|{parsing.JOB_FORMAT}",
        ]

    def read(self, done: Done) -> list[SlurmJob]:
        """Those that Slurm has."""
        if done.code and "invalid job id" in done.err.lower():
            return []
        return Squeue(self.fence).read(done)


@dataclass(frozen=True, slots=True)
class ScontrolShowJob:
    """scontrol show job."""

    number: int

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return ["scontrol", "--oneliner", "show", "job", str(self.number)]

    def read(self, done: Done) -> SlurmJob | None:
        """The job; None only if Slurm said that there is none."""
        if done.code and "invalid job id" in done.err.lower():
            return None
        _check("scontrol show job", done)
        found = parsing.job(done.out)
        if found is None:
            raise SiteUnavailable("scontrol show job answered nothing that can be read.")
        return found


@dataclass(frozen=True, slots=True)
class Sbatch:
    """sbatch; the script goes to its standard input."""

    wanted: Submission

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return ["sbatch", *sbatch(self.wanted)]

    def read(self, done: Done) -> int:
        """The job's number."""
        number = done.out.strip().partition(";")[0]
        if done.code == 0 and number.isdigit():
            return int(number)
        if done.code > 1 or done.code < 0:
            raise SiteUnavailable(f"sbatch was ended before it answered ({done.code}): {done.err.strip()[:300]}")
        raise failure(SUBMISSION, done.err.replace("sbatch: error:", "") or done.out)


@dataclass(frozen=True, slots=True)
class Scancel:
    """scancel."""

    number: int

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return ["scancel", str(self.number)]

    def read(self, done: Done) -> None:
        """One that is already over is no error."""
        if done.code and not any(sign in done.err.lower() for sign in _OVER):
            _check("scancel", done)


@dataclass(frozen=True, slots=True)
class ScontrolHold:
    """scontrol hold and release."""

    number: int
    held: bool

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return ["scontrol", "hold" if self.held else "release", str(self.number)]

    def read(self, done: Done) -> None:
        """What no longer waits needs neither."""
        if done.code and not any(sign in done.err.lower() for sign in _NOT_WAITING):
            _check("scontrol hold", done)


@dataclass(frozen=True, slots=True)
class ListGroups:
    """id: the groups of an account."""

    user: str

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return ["id", "-Gn", "--", self.user]

    def read(self, done: Done) -> frozenset[str] | None:
        """Their names."""
        return frozenset(done.out.split()) if done.code == 0 else None


@dataclass(frozen=True, slots=True)
class Sacct:
    """sacct, for some jobs."""

    numbers: Sequence[int]
    since: datetime
    fence: str = field(default_factory=_fence)

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return _sacct(self.fence, self.since, f"--jobs={','.join(str(n) for n in self.numbers)}")

    def read(self, done: Done) -> list[Accounted]:
        """The jobs with the sums over their steps."""
        _check("sacct", done)
        return parsing.accounted(done.out, self.fence)


@dataclass(frozen=True, slots=True)
class SacctSearch:
    """sacct, for all jobs of some accounts since a moment."""

    users: Sequence[str]
    since: datetime
    fence: str = field(default_factory=_fence)

    @property
    def words(self) -> list[str]:
        """Program and arguments."""
        return _sacct(self.fence, self.since, "--allocations", f"--user={','.join(self.users)}")

    def read(self, done: Done) -> list[Accounted]:
        """The jobs, without their steps."""
        _check("sacct", done)
        return parsing.accounted(done.out, self.fence)


def _sacct(fence: str, since: datetime, *more: str) -> list[str]:
    begin = since.strftime("%Y-%m-%dT%H:%M:%S")
    words = ["sacct", "--noheader", "--parsable2", "--duplicates", f"--delimiter={fence}", f"--starttime={begin}"]
    return [*words, f"--format={parsing.ACCOUNT_FIELDS}", *more]


@dataclass(frozen=True, slots=True)
class ScontrolShowNodes:
    """scontrol show nodes."""

    words = ["scontrol", "--oneliner", "show", "nodes"]

    def read(self, done: Done) -> list[SlurmNode]:
        """The nodes."""
        if "no nodes in the system" in (done.out + done.err).lower():
            return []
        _check("scontrol show nodes", done)
        found = parsing.nodes(done.out)
        if not found:
            raise SiteUnavailable("scontrol show nodes wrote neither nodes nor that there are none.")
        return found


@dataclass(frozen=True, slots=True)
class ScontrolShowPartitions:
    """scontrol show partitions."""

    words = ["scontrol", "--oneliner", "--all", "show", "partitions"]

    def read(self, done: Done) -> list[SlurmPartition]:
        """The partitions."""
        _check("scontrol show partitions", done)
        return parsing.partitions(done.out)


@dataclass(frozen=True, slots=True)
class ShowConfig:
    """scontrol show config."""

    words = ["scontrol", "show", "config"]

    def read(self, done: Done) -> SiteFacts:
        """What matters of it."""
        _check("scontrol show config", done)
        found = parsing.config(done.out)
        if not found.version:
            raise EngineRefused("scontrol show config does not report Slurm's version; is this Slurm?")
        return found
