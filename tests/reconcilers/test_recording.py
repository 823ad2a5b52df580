"""When events are written."""

from __future__ import annotations

import pytest

from isthmus.reconcilers.recording import CALM, PATIENCE, until_written


def test_what_is_said_alone_is_written_after_a_moment() -> None:
    assert until_written(first=10.0, latest=10.0, now=10.0) == pytest.approx(CALM)
    assert until_written(first=10.0, latest=10.0, now=10.0 + CALM) <= 0


def test_while_more_is_said_it_waits() -> None:
    assert until_written(first=10.0, latest=11.0, now=11.0) > 0


def test_it_does_not_wait_for_ever() -> None:
    late = 10.0 + PATIENCE
    assert until_written(first=10.0, latest=late, now=late) <= 0
