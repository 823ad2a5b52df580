"""Slurm by slurmrestd: the version is found out, the token says who asks, connections are few and kept.

slurmrestd does not report the configuration. Whether there is accounting is seen by whether it offers its calls;
whether energy is measured, by whether the accounting has any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import orjson

from isthmus._kit.children import Ready
from isthmus._kit.http import HttpAnswer, HttpClient, NoAnswer
from isthmus.engines.slurm.batch.submissions import Submission
from isthmus.engines.slurm.facts import Accounted, SiteFacts, SlurmJob, SlurmNode, SlurmPartition
from isthmus.engines.slurm.settings import RestSettings
from isthmus.errors import Misconfigured, SiteUnavailable

from . import rest_calls, rest_documents
from .base import Budget
from .rest_calls import Reply, RestCall
from .tokens import Tokens

log = logging.getLogger(__name__)
T = TypeVar("T")
FEW = 32
"""Jobs that are asked for one by one, however few there are. Each takes slurmrestd a millisecond, and one in a list of
all a fifth of that."""
MOST_ALONE = 100
"""The most that are, however many there are: what may be asked in a second is limited."""
_PLACES = ("/openapi/v3", "/openapi.json", "/openapi")


class Rest:
    """The questions of `Controller`, put to slurmrestd."""

    def __init__(self, settings: RestSettings, seconds: float, budget: Budget) -> None:
        self._settings, self._budget = settings, budget
        self._tokens = Tokens(settings)
        self._client = HttpClient(settings.url, connections=settings.connections, seconds=seconds)
        self._version = 0
        self._accounting_version: int | None = None
        self._energy = False
        self._remembered = 0

    async def open(self) -> None:
        """Find out which versions there are."""
        await self._discover()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.close()

    async def _discover(self) -> None:
        for place in _PLACES:
            reply = _reply(await self._exchange("GET", place, None, self._settings.user))
            if reply.status == 401:
                raise Misconfigured("slurmrestd does not accept our token; look at keyFile or tokenFile of the site.")
            if found := rest_documents.versions(reply.body):
                self._version = found[0]
                offered = rest_documents.versions(reply.body, "slurmdb")
                self._accounting_version = offered[0] if offered else None
                return
        raise Misconfigured(
            f"{self._settings.url} offers none of the versions v0.0.{rest_documents.OLDEST} to "
            f"v0.0.{rest_documents.NEWEST}; is it slurmrestd?"
        )

    async def jobs(self) -> list[SlurmJob]:
        """All jobs."""
        call = rest_calls.ListJobs()
        answer = await self._answer(call)
        # Thousands of jobs are megabytes of JSON: reading them would keep everybody else waiting.
        found = await asyncio.to_thread(lambda: call.read(_reply(answer)))
        self._remembered = len(found)
        return found

    async def job(self, number: int) -> SlurmJob | None:
        """One job."""
        return await self._do(rest_calls.ShowJob(number))

    async def some(self, numbers: Sequence[int], user: str = "") -> list[SlurmJob]:
        """Some jobs: one by one, as long as that is cheaper than all there are."""
        del user
        if len(numbers) > max(FEW, min(MOST_ALONE, self._remembered // 6)):
            wanted = frozenset(numbers)
            return [job for job in await self.jobs() if job.id in wanted]
        found = await asyncio.gather(*(self.job(number) for number in numbers))
        return [job for job in found if job is not None]

    async def submit(self, wanted: Submission, ready: Ready | None = None) -> int:
        """Submit with the person's token."""
        if ready is not None:
            await ready()
        call = rest_calls.SubmitJob(wanted)
        reply = _reply(await self._answer(call, wanted.user))
        if reported := reply.body.get("warnings"):
            log.warning(
                "slurmrestd has doubts about a submission", extra={"comment": wanted.comment, "doubts": reported}
            )
        return call.read(reply)

    async def cancel(self, number: int, user: str) -> None:
        """Cancel with the person's token."""
        await self._do(rest_calls.CancelJob(number), user)

    async def hold(self, number: int, user: str, held: bool) -> None:
        """Hold or release with the person's token."""
        await self._do(rest_calls.HoldJob(number, held), user)

    async def groups(self, user: str) -> frozenset[str] | None:
        """slurmrestd does not report it."""
        del user
        return None

    async def accounted(self, numbers: Sequence[int], since: datetime) -> list[Accounted]:
        """Some jobs as the accounting has them: one by one, or all that were there since then."""
        if len(numbers) > FEW:
            wanted = frozenset(numbers)
            return self._learn([row for row in await self.search_accounting((), since) if row.id in wanted])
        found = await asyncio.gather(*(self._do(rest_calls.ReadAccounting(number)) for number in numbers))
        return self._learn([row for rows in found for row in rows if (row.ended_at or since) >= since])

    def _learn(self, rows: list[Accounted]) -> list[Accounted]:
        """Whether energy is measured is nowhere said: it is, once the accounting has some."""
        self._energy = self._energy or any(row.energy_joules for row in rows)
        return rows

    async def search_accounting(self, users: Sequence[str], since: datetime) -> list[Accounted]:
        """Every job that was there since a moment."""
        call = rest_calls.SearchAccounting(users, since)
        answer = await self._answer(call)
        return await asyncio.to_thread(lambda: call.read(_reply(answer)))

    async def nodes(self) -> list[SlurmNode]:
        """All nodes."""
        return await self._do(rest_calls.ListNodes())

    async def partitions(self) -> list[SlurmPartition]:
        """All partitions."""
        return await self._do(rest_calls.ListPartitions())

    async def facts(self) -> SiteFacts:
        """What can be known of the configuration."""
        version = await self._do(rest_calls.Ping())
        return SiteFacts(
            version, accounting=self._accounting_version is not None, gathers_usage=True, measures_energy=self._energy
        )

    async def _do(self, call: RestCall[T], user: str | None = None) -> T:
        return call.read(_reply(await self._answer(call, user)))

    async def _answer(self, call: RestCall[Any], user: str | None = None) -> HttpAnswer:
        await self._budget.take()
        path = call.path(self._accounting_version or self._version)
        if path.startswith("/slurm/"):
            path = call.path(self._version)
        return await self._exchange(call.method, path, call.body(self._version), user or self._settings.user)

    async def _exchange(self, method: str, path: str, body: Any, user: str) -> HttpAnswer:
        headers = {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": self._tokens.of(user)}
        content = b""
        if body is not None:
            content = orjson.dumps(body)
            headers["Content-Type"] = "application/json"
        try:
            return await self._client.ask(method, path, headers, content)
        except NoAnswer as error:
            raise SiteUnavailable(f"slurmrestd at {self._settings.url} did not answer: {error}.") from error


def _reply(answer: HttpAnswer) -> Reply:
    try:
        decoded = orjson.loads(answer.body) if answer.body else {}
    except ValueError:
        said = answer.body[:300].decode(errors="replace")
        decoded = {"errors": [{"error": said}]} if answer.status >= 400 else {}
    return Reply(answer.status, decoded if isinstance(decoded, dict) else {})
