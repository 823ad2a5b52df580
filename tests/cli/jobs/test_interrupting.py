"""No Ctrl-C is lost, and none strikes where nobody expects it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from isthmus.cli.jobs import running
from isthmus.cli.jobs.interrupting import Terminated, noted, raised, terminated
from isthmus.cli.jobs.run_words import RunOptions, read_words


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminated)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def strike(number: int) -> None:
    os.kill(os.getpid(), number)


def test_signals_are_noted_and_raised_again_where_it_is_wanted() -> None:
    with noted() as signals:
        strike(signal.SIGINT)
        strike(signal.SIGTERM)
        assert signals == [signal.SIGINT, signal.SIGTERM]
        with pytest.raises(KeyboardInterrupt), raised():
            strike(signal.SIGINT)
        with pytest.raises(Terminated), raised():
            strike(signal.SIGTERM)
        strike(signal.SIGINT)
        assert len(signals) == 3, "afterwards they are noted as before"
    with pytest.raises(KeyboardInterrupt):
        strike(signal.SIGINT)


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with noted() as signals, raised():
        strike(signal.SIGINT)
    assert signals == []
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


class Job:
    """One that runs until it is cancelled."""

    namespace, name, finished = "default", "x", True

    def __init__(self) -> None:
        self.object: dict[str, Any] = {"spec": {}, "status": {"phase": "Cancelled"}}
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def options() -> RunOptions:
    found = read_words(["--quiet", "--", "true"])
    assert found is not None
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_anything_is_awaited_cancels_the_job(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output begins before all threads run, and whoever reads it may have seen enough."""
    job = Job()
    monkeypatch.setattr(running, "ask_detach_or_cancel", lambda _: "c")
    monkeypatch.setattr(running._Run, "_copy", lambda *_: None)
    monkeypatch.setattr(running, "in_background", lambda *_: strike(number))
    run = running._Run(None, job, options())  # type: ignore[arg-type]
    monkeypatch.setattr(job, "cancel", lambda: (Job.cancel(job), run._done.set()))
    assert run.follow() == 130
    assert job.cancelled == 1
