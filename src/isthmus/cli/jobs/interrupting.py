"""Ctrl-C and SIGTERM while a job is followed.

Python raises KeyboardInterrupt between any two lines, also where nobody expects it; and a signal that comes just before
the main thread begins to wait is seen only when it has waited. So while it waits, signals are noted, and it looks for
them now and then.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

GLANCE = 0.1
"""Seconds between two looks at what was noted: an answer to Ctrl-C within that seems immediate."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, but nobody is there to be asked."""


def terminated(_number: int, _frame: FrameType | None) -> None:
    """A handler of SIGTERM. timeout(1) sends it twice: the second must not interrupt the cancelling."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    raise Terminated


@contextmanager
def noted() -> Iterator[list[int]]:
    """Signals are not raised, but added to the list."""
    numbers: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)

    with _handled(note, note):
        yield numbers


@contextmanager
def raised() -> Iterator[None]:
    """Signals are raised, as ever: for what may take long within `noted`."""
    with _handled(signal.default_int_handler, terminated):
        yield


@contextmanager
def _handled(*handlers: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """These handle Ctrl-C and SIGTERM; a signal that is ignored, as below nohup, stays so."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    for (number, former), handler in zip(before, handlers, strict=True):
        if former is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before:
            signal.signal(number, former)


def ask_detach_or_cancel(name: str, kind: str = "job") -> str:
    """`d`, `c`, or empty to go on. Without a terminal: cancel. A second Ctrl-C: cancel."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return "c"
    try:
        sys.stderr.write(f"\nisthmus: {kind} {name} is still running. [d]etach, [c]ancel, or Enter to go on? ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower()[:1]
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return "c"
