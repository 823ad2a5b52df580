"""One question to the accounting for all runs of whom it is not known whether Slurm had them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from isthmus.engines.slurm.accounting.lookup import CLOCKS_DIFFER, AccountingSearch, Sought
from isthmus.engines.slurm.facts import Accounted
from isthmus.errors import SiteUnavailable

pytestmark = pytest.mark.anyio
SENT = 1_700_000_000.0


class Accounting:
    def __init__(self, *rows: Accounted) -> None:
        self.rows = list(rows)
        self.asked: list[tuple[tuple[str, ...], datetime]] = []
        self.well = True

    async def __call__(self, users: Sequence[str], since: datetime) -> list[Accounted]:
        self.asked.append((tuple(users), since))
        await asyncio.sleep(0.01)
        if not self.well:
            raise SiteUnavailable("slurmdbd does not answer")
        return self.rows


def sought(number: int, user: str = "ada", sent: float = SENT) -> Sought:
    return Sought(user, f"/runs/{number}/work", sent, time.monotonic())


def row(number: int, user: str = "ada", folder: int | None = None) -> Accounted:
    return Accounted(number, ("COMPLETED",), user=user, work_dir=f"/runs/{folder or number}/work")


async def test_a_thousand_runs_are_one_question_from_shortly_before_the_earliest() -> None:
    accounting = Accounting(*(row(number) for number in range(1, 1000, 2)))
    search = AccountingSearch(accounting)
    runs = [sought(number, "ada" if number % 3 else "bob", SENT + number) for number in range(1000)]
    found = await asyncio.gather(*(search.find(run) for run in runs))
    assert accounting.asked == [(("ada", "bob"), datetime.fromtimestamp(SENT, UTC) - CLOCKS_DIFFER)]
    assert [number for number, one in enumerate(found) if one] == [n for n in range(1, 1000, 2) if n % 3]


async def test_an_answer_serves_those_for_whom_it_is_new_enough() -> None:
    accounting = Accounting(row(1))
    search = AccountingSearch(accounting)
    later = sought(2)
    assert await search.find(sought(1)) is not None
    assert await search.find(later) is None
    assert len(accounting.asked) == 1, "it became unsure before that was asked"
    accounting.rows.append(row(3))
    assert await search.find(sought(3)) is not None
    assert await search.find(Sought("ada", "/runs/1/work", SENT - 5000, later.unsure_since)) is not None
    assert len(accounting.asked) == 3, "and what was asked for must reach as far back"


async def test_a_row_of_somebody_else_is_not_taken() -> None:
    search = AccountingSearch(Accounting(row(1, "eve", folder=9), row(2, "", folder=8)))
    assert await search.find(sought(9)) is None
    found = await search.find(sought(8))
    assert found is not None, "Slurm 22.05 names nobody where a job has no association"
    assert found.id == 2


async def test_of_two_rows_the_first_counts() -> None:
    search = AccountingSearch(Accounting(row(12, folder=7), row(11, folder=7)))
    found = await search.find(sought(7))
    assert found is not None
    assert found.id == 11


async def test_no_answer_is_no_answer_for_anybody_and_is_not_kept() -> None:
    accounting = Accounting(row(1))
    search = AccountingSearch(accounting)
    accounting.well = False
    runs = [sought(1), sought(2)]
    outcomes = await asyncio.gather(*(search.find(run) for run in runs), return_exceptions=True)
    assert all(isinstance(outcome, SiteUnavailable) for outcome in outcomes)
    accounting.well = True
    assert await search.find(runs[0]) is not None
    await search.close()
