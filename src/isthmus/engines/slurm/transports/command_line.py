"""Slurm by its command line: here, or wherever a runner runs it."""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from isthmus._kit.children import Children, Ready
from isthmus.engines.slurm.batch.submissions import Submission
from isthmus.engines.slurm.facts import Accounted, SiteFacts, SlurmJob, SlurmNode, SlurmPartition
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.errors import EngineRefused, Misconfigured, SiteUnavailable

from . import commands
from .base import Budget
from .commands import Command, Done

T = TypeVar("T")
AT_ONCE, LOOKS_AT_ONCE = 16, 4
"""Commands of persons, and those that only look, that run at the same time: slurmctld answers no more any faster."""
PERSON_SECONDS = 5.0
"""How long an account is taken to be what it was: in a burst it is looked up for the first job only."""
FEW, MOST_ALONE = 4, 24
"""Jobs that are asked for one by one, at least and at most: each command costs some milliseconds."""
WORTH_ONE = 400
"""Jobs that Slurm remembers which cost as much to look at as one command: then one more is asked for by itself."""
MOST_NAMED = 10_000
"""Jobs in one question: their numbers are one argument, and those are limited."""
LONG = 1 << 15
"""Characters that are read in a thread: everybody else would wait for it."""


class Runner(Protocol):
    """Runs commands, as the site's own account or as a person."""

    async def open(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def run(
        self,
        words: Sequence[str],
        *,
        user: str | None,
        stdin: bytes,
        env: Mapping[str, str],
        ready: Ready | None = None,
    ) -> Done:
        """Run to the end; raises SiteUnavailable when it is not known whether it ran.

        With `ready`, it may be started at once, and finds its input when that is done; if that fails, never.
        """
        ...


class LocalRunner:
    """Runs commands on this machine: as root for any person, otherwise for oneself only."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # A look at jobs that ended must not wait for a burst of jobs that are sent.
        self._acting = Children(AT_ONCE, "slurm-commands")
        self._looking = Children(LOOKS_AT_ONCE, "slurm-looks")
        self._persons: dict[str, tuple[float, list[str]]] = {}

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Let go of the threads."""
        self._acting.close()
        self._looking.close()

    async def run(
        self,
        words: Sequence[str],
        *,
        user: str | None,
        stdin: bytes,
        env: Mapping[str, str],
        ready: Ready | None = None,
    ) -> Done:
        """Run to the end."""
        children = self._looking if user is None else self._acting
        try:
            ended = await children.run(
                [*self._as_person(user), *words], env=env, stdin=stdin, cwd="/", seconds=self._seconds, ready=ready
            )
        except TimeoutError:
            raise SiteUnavailable(f"{words[0]} did not answer within {self._seconds:g} s.") from None
        except FileNotFoundError:
            raise Misconfigured(
                f"There is no {words[0]} on this machine. Install slurm-client, or set slurm.path of the site."
            ) from None
        except OSError as error:
            raise SiteUnavailable(f"{words[0]} could not be run: {error.strerror or error}.") from error
        return Done(ended.code, ended.out.decode(errors="replace"), ended.err.decode(errors="replace"))

    def _as_person(self, user: str | None) -> list[str]:
        """The words that become a person before anything else is done."""
        if user is None:
            return []
        now = time.monotonic()
        until, words = self._persons.get(user, (0.0, []))
        if now >= until:
            words = _becoming(user)
            self._persons[user] = now + PERSON_SECONDS, words
        return words


def _becoming(user: str) -> list[str]:
    entry = account(user)
    if os.geteuid() != 0:
        if entry.pw_uid != os.geteuid():
            raise EngineRefused(
                f"Jobs of {user} can only be submitted by {user} or by root; the control plane is neither."
            )
        return []
    groups = ",".join(str(group) for group in os.getgrouplist(user, entry.pw_gid))
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", f"--groups={groups}", "--"]


def account(user: str) -> pwd.struct_passwd:
    """An account of this machine, never root's; raises EngineRefused."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise EngineRefused(
            f"There is no account {user!r} on this cluster. Create it, or map the tenant elsewhere."
        ) from None
    if entry.pw_uid == 0:
        raise EngineRefused("Jobs never run as root. Map the tenant to the person's own account.")
    return entry


class CommandLine:
    """The questions of `Controller`, put to Slurm's commands."""

    def __init__(self, settings: SlurmSettings, runner: Runner, budget: Budget) -> None:
        self._settings, self._runner, self._budget = settings, runner, budget
        self._remembered = 0
        """How many jobs slurmctld had at the last look at all of them."""

    async def open(self) -> None:
        """Connect."""
        await self._runner.open()

    async def close(self) -> None:
        """Let go."""
        await self._runner.close()

    async def jobs(self) -> list[SlurmJob]:
        """All jobs."""
        found = await self._do(commands.Squeue())
        self._remembered = len(found)
        return found

    async def job(self, number: int) -> SlurmJob | None:
        """One job."""
        return await self._do(commands.ScontrolShowJob(number))

    async def some(self, numbers: Sequence[int], user: str = "") -> list[SlurmJob]:
        """Some jobs. A few are asked for one by one: for each slurmctld then looks at that one only."""
        if len(numbers) <= max(FEW, min(MOST_ALONE, self._remembered // WORTH_ONE)):
            found = await asyncio.gather(*(self._do(commands.ListSomeJobs([number])) for number in numbers))
        else:
            parts = [numbers[at : at + MOST_NAMED] for at in range(0, len(numbers), MOST_NAMED)]
            found = [await self._do(commands.ListSomeJobs(part, user)) for part in parts]
        return [job for jobs in found for job in jobs]

    async def submit(self, wanted: Submission, ready: Ready | None = None) -> int:
        """Submit as the person. sbatch starts at once and waits for the script; without one it sends nothing."""
        # Only what the job shall see: sbatch hands its own environment on.
        env = {"PATH": self._settings.search_path, **wanted.environment}
        return await self._do(
            commands.Sbatch(wanted),
            user=wanted.user,
            stdin=wanted.script.encode("utf-8", "surrogateescape"),
            env=env,
            ready=ready,
        )

    async def cancel(self, number: int, user: str) -> None:
        """Cancel as the person."""
        await self._do(commands.Scancel(number), user=user)

    async def hold(self, number: int, user: str, held: bool) -> None:
        """Hold or release as the person: so it stays hers to release."""
        await self._do(commands.ScontrolHold(number, held), user=user)

    async def groups(self, user: str) -> frozenset[str] | None:
        """The groups of an account, where the commands run; Slurm is not asked."""
        command = commands.ListGroups(user)
        env = {"PATH": self._settings.search_path}
        return command.read(await self._runner.run(command.words, user=None, stdin=b"", env=env))

    async def accounted(self, numbers: Sequence[int], since: datetime) -> list[Accounted]:
        """Some jobs as sacct has them."""
        return await self._do(commands.Sacct(numbers, since)) if numbers else []

    async def search_accounting(self, users: Sequence[str], since: datetime) -> list[Accounted]:
        """Every job of these accounts that was there since a moment."""
        return await self._do(commands.SacctSearch(users, since)) if users else []

    async def nodes(self) -> list[SlurmNode]:
        """All nodes."""
        return await self._do(commands.ScontrolShowNodes())

    async def partitions(self) -> list[SlurmPartition]:
        """All partitions."""
        return await self._do(commands.ScontrolShowPartitions())

    async def facts(self) -> SiteFacts:
        """How Slurm is configured."""
        return await self._do(commands.ShowConfig())

    async def _do(
        self,
        command: Command[T],
        *,
        user: str | None = None,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        ready: Ready | None = None,
    ) -> T:
        await self._budget.take(at_once=user is None)
        if env is None:
            env = {"PATH": self._settings.search_path, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
        if self._settings.conf:
            env = {**env, "SLURM_CONF": self._settings.conf}
        done = await self._runner.run(command.words, user=user, stdin=stdin, env=env, ready=ready)
        if len(done.out) > LONG:
            return await asyncio.to_thread(command.read, done)
        return command.read(done)
