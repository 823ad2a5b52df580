"""When the runs of an agent that is away count as lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from isthmus.engines.agent.contacts import ago, is_lost

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_without_a_limit_nothing_is_lost() -> None:
    assert not is_lost(NOW - 1000 * HOUR, NOW - 1000 * HOUR, NOW, None, None)
    assert not is_lost(None, NOW - 1000 * HOUR, NOW, None, None)


def test_silence_counts_from_when_there_was_somebody_to_hear_it() -> None:
    day = 86_400.0
    assert is_lost(NOW - 25 * HOUR, NOW - 100 * HOUR, NOW, day, None)
    assert not is_lost(NOW - 23 * HOUR, NOW - 100 * HOUR, NOW, day, None)
    assert not is_lost(NOW - 1000 * HOUR, NOW - HOUR, NOW, day, None), "the control plane was away itself"
    assert is_lost(None, NOW - 25 * HOUR, NOW, day, None)


def test_an_administrator_gives_a_machine_up_until_it_is_heard_again() -> None:
    assert is_lost(NOW - 2 * HOUR, NOW - HOUR, NOW, None, NOW - HOUR)
    assert not is_lost(NOW - HOUR / 2, NOW - HOUR, NOW, None, NOW - HOUR)


@pytest.mark.parametrize(
    ("hours", "said"), [(0.01, "less than a minute ago"), (1.5, "90 min ago"), (3.5, "3 h ago"), (100, "4 days ago")]
)
def test_it_is_said_roughly_how_long_ago(hours: float, said: str) -> None:
    assert ago(NOW - hours * HOUR, NOW) == said
