"""When events are written."""

from __future__ import annotations

import pytest

from isthmus.reconcilers.recording import PATIENCE, QUIET_PERIOD, until_written


def test_what_is_said_alone_is_written_after_a_moment() -> None:
    assert until_written(first=10.0, latest=10.0, now=10.0) == pytest.approx(QUIET_PERIOD)
    assert until_written(first=10.0, latest=10.0, now=10.0 + QUIET_PERIOD) <= 0


def test_while_more_is_said_it_waits() -> None:
    assert until_written(first=10.0, latest=11.0, now=11.0) > 0


def test_it_does_not_wait_for_ever() -> None:
    late = 10.0 + PATIENCE
    assert until_written(first=10.0, latest=late, now=late) <= 0
