"""Several ways into one Slurm: each for what it does best, and none twice for what must be done once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from isthmus.engines.slurm.batch.submissions import Submission
from isthmus.engines.slurm.facts import SiteFacts, SlurmJob
from isthmus.engines.slurm.transports.routing import BestWays
from isthmus.errors import Misconfigured, SiteUnavailable

pytestmark = pytest.mark.anyio
WANTED = cast(Submission, None)


@dataclass
class Way:
    """A way that notes what it is asked, and answers if it is well."""

    name: str
    seconds: float = 0.0
    well: bool = True
    asked: list[str] = field(default_factory=list)

    async def open(self) -> None:
        self._answer("open")

    async def close(self) -> None:
        pass

    async def facts(self) -> SiteFacts:
        self._answer("facts")
        return SiteFacts(version=self.name)

    async def jobs(self) -> list[SlurmJob]:
        import asyncio

        self._answer("jobs")
        await asyncio.sleep(self.seconds)
        return []

    async def some(self, numbers: Sequence[int], user: str = "") -> list[SlurmJob]:
        self._answer("some")
        return [SlurmJob(number, ("RUNNING",), user=user) for number in numbers]

    async def submit(self, wanted: object, ready: object = None) -> int:
        del wanted
        self._answer("submit")
        return 7

    async def cancel(self, number: int, user: str) -> None:
        self._answer("cancel")

    def _answer(self, what: str) -> None:
        self.asked.append(what)
        if not self.well:
            raise SiteUnavailable(f"{self.name} does not answer")


async def both(rest: Way, command: Way) -> BestWays:
    ways = BestWays(cast(Any, {"REST": rest, "Command": command}))
    await ways.open()
    rest.asked.clear()
    command.asked.clear()
    return ways


async def test_jobs_are_sent_by_one_and_looked_at_by_the_quicker() -> None:
    rest, command = Way("REST", 0.05), Way("Command")
    ways = await both(rest, command)
    await ways.submit(WANTED)
    await ways.some([1, 2])
    assert (await ways.facts()).version == "Command", "the command line knows more of it"
    assert rest.asked == ["submit"]
    assert command.asked == ["some", "facts"]
    assert str(ways) == "jobs are sent by REST and looked at by Command"


async def test_a_question_goes_to_the_next_and_a_submission_does_not() -> None:
    rest, command = Way("REST"), Way("Command", 0.05)
    ways = await both(rest, command)
    rest.well = False
    assert [job.id for job in await ways.some([5])] == [5]
    command.asked.clear()
    ways = await both(Way("REST"), command)
    rest = cast(Way, cast(Any, ways)._all["REST"])
    rest.well = False
    with pytest.raises(SiteUnavailable):
        await ways.submit(WANTED)
    assert command.asked == [], "nobody knows whether it arrived"
    assert await ways.submit(WANTED) == 7, "and the one after goes by the way that answers"
    assert command.asked == ["submit"]


async def test_when_nobody_answers_it_is_said() -> None:
    rest, command = Way("REST"), Way("Command")
    ways = await both(rest, command)
    rest.well = command.well = False
    with pytest.raises(SiteUnavailable):
        await ways.some([1])
    rest.well = True
    assert await ways.some([1]), "whoever did not answer is asked again where there is no other"


async def test_one_that_does_not_work_is_left_out_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.engines.slurm.transports import routing as module

    rest, command = Way("REST", well=False), Way("Command")
    ways = await both(rest, command)
    await ways.submit(WANTED)
    assert command.asked == ["submit"]
    rest.well = True
    await ways.facts()
    assert not rest.asked, "not at once"
    now = module.time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + module.LEFT_ALONE + 1)
    await ways.facts()
    await ways.submit(WANTED)
    assert rest.asked == ["open", "facts", "jobs", "submit"]


async def test_none_that_works_is_an_error() -> None:
    class Wrong(Way):
        async def open(self) -> None:
            raise Misconfigured("there is no such token")

    with pytest.raises(Misconfigured):
        await BestWays(cast(Any, {"REST": Wrong("REST"), "Command": Wrong("Command")})).open()
