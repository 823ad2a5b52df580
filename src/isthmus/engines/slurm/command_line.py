"""Slurm by its command line: here, or wherever a runner runs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from isthmus.errors import EngineRefused, Misconfigured, SiteUnavailable

from . import commands
from .commands import Command, Done
from .controllers import Budget
from .facts import Accounted, SiteFacts, SlurmJob, SlurmNode, SlurmPartition
from .settings import SlurmSettings
from .submissions import Submission

T = TypeVar("T")
AT_ONCE = 16
"""Commands that run at the same time: slurmctld answers no more of them any faster."""


class Runner(Protocol):
    """Runs commands, as the site's own account or as a person."""

    async def open(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    async def run(self, words: Sequence[str], *, user: str | None, stdin: bytes, env: Mapping[str, str]) -> Done:
        """Run to the end; raises SiteUnavailable when it is not known whether it ran."""
        ...


class LocalRunner:
    """Runs commands on this machine: as root for any person, otherwise for oneself only."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to let go."""

    async def run(self, words: Sequence[str], *, user: str | None, stdin: bytes, env: Mapping[str, str]) -> Done:
        """Run to the end."""
        async with self._gate:
            return await self._run(words, user, stdin, env)

    async def _run(self, words: Sequence[str], user: str | None, stdin: bytes, env: Mapping[str, str]) -> Done:
        try:
            process = await asyncio.create_subprocess_exec(
                *_as_person(user),
                *words,
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(env),
                cwd="/",
            )
        except FileNotFoundError:
            raise Misconfigured(
                f"There is no {words[0]} on this machine. Install slurm-client, or set slurm.path of the site."
            ) from None
        except OSError as error:
            raise SiteUnavailable(f"{words[0]} could not be run: {error.strerror}.") from error
        try:
            async with asyncio.timeout(self._seconds):
                out, err = await process.communicate(stdin or None)
        except TimeoutError:
            raise SiteUnavailable(f"{words[0]} did not answer within {self._seconds:g} s.") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        assert process.returncode is not None
        return Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def _as_person(user: str | None) -> list[str]:
    """The words that become a person before anything else is done."""
    if user is None:
        return []
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

    async def open(self) -> None:
        """Connect."""
        await self._runner.open()

    async def close(self) -> None:
        """Let go."""
        await self._runner.close()

    async def jobs(self) -> list[SlurmJob]:
        """All jobs."""
        return await self._do(commands.ListJobs())

    async def job(self, number: int) -> SlurmJob | None:
        """One job."""
        return await self._do(commands.ShowJob(number))

    async def submit(self, wanted: Submission) -> int:
        """Submit as the person."""
        # Only what the job shall see: sbatch hands its own environment on.
        env = {"PATH": self._settings.search_path, **wanted.environment}
        return await self._do(
            commands.SubmitJob(wanted),
            user=wanted.user,
            stdin=wanted.script.encode("utf-8", "surrogateescape"),
            env=env,
        )

    async def cancel(self, number: int, user: str) -> None:
        """Cancel as the person."""
        await self._do(commands.CancelJob(number), user=user)

    async def hold(self, number: int, user: str, held: bool) -> None:
        """Hold or release as the person: so it stays hers to release."""
        await self._do(commands.HoldJob(number, held), user=user)

    async def groups(self, user: str) -> frozenset[str] | None:
        """The groups of an account, where the commands run; Slurm is not asked."""
        command = commands.ListGroups(user)
        env = {"PATH": self._settings.search_path}
        return command.read(await self._runner.run(command.words, user=None, stdin=b"", env=env))

    async def books(self, numbers: Sequence[int], since: datetime) -> list[Accounted]:
        """Some jobs as sacct has them."""
        return await self._do(commands.ReadBooks(numbers, since)) if numbers else []

    async def search_books(self, work_dir: str, user: str, since: datetime) -> Accounted | None:
        """The job with this working folder."""
        return await self._do(commands.SearchBooks(work_dir, user, since))

    async def nodes(self) -> list[SlurmNode]:
        """All nodes."""
        return await self._do(commands.ListNodes())

    async def partitions(self) -> list[SlurmPartition]:
        """All partitions."""
        return await self._do(commands.ListPartitions())

    async def facts(self) -> SiteFacts:
        """How Slurm is configured."""
        return await self._do(commands.ShowConfig())

    async def _do(
        self, command: Command[T], *, user: str | None = None, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> T:
        await self._budget.take()
        if env is None:
            env = {"PATH": self._settings.search_path, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
        if self._settings.conf:
            env = {**env, "SLURM_CONF": self._settings.conf}
        return command.read(await self._runner.run(command.words, user=user, stdin=stdin, env=env))
