"""Time that jumps: an event loop whose clock is set on whenever nothing is left to do.

An hour of backoff takes no time, in the order in which it would have happened. Only threads (a commit, a file) take
real time: while one is at work, the clock is not set on.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

from isthmus._kit.clock import utcnow

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Does not wait for a timer: it sets the clock on, unless a thread is at work, which takes real time."""

    loop: JumpingLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; if nothing is, the time until the next timer has passed."""
        if timeout is None or timeout <= 0 or self.loop.threads:
            return super().select(timeout if timeout is None else min(timeout, 0.05))
        found = super().select(0)
        if not found:
            self.loop.ahead += timeout
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose time is virtual."""

    def __init__(self) -> None:
        self.ahead, self.threads = 0.0, 0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """The seconds that the loop's timers go by."""
        return super().time() + self.ahead

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Count threads at work: while there are any, the clock is not set on."""
        self.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _: object) -> None:
        self.threads -= 1


def on_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop whose time jumps."""
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(work)


def virtual_now() -> datetime:
    """The wall clock as the running loop's time has it."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    return utcnow() + timedelta(seconds=loop.ahead)
