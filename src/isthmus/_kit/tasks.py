"""Background tasks that cannot die unnoticed.

A supervised task that fails, whatever the exception, is logged, counted and started again after a pause that doubles
from one failure to the next. While it is down, and until it has run again for twice its last pause, `failure` says why.
Only a cancellation by `stop` ends it; a cancellation that comes out of the work itself is a failure like any other.

A set of supervised tasks belongs to one owner (an engine, the control plane), which closes it. A *vital* task is one
without which its owner does not work: only the failures of those are the owner's own. The others serve one piece of
work each, whose failure is nobody else's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from weakref import WeakSet

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds between a failure and the next start: those of the first failure, and the most."""
STEADY = 2.0
"""Seconds without failure after which a task that was started again counts as well, at least."""
LONGEST_REASON = 300

_SUPERVISED: WeakSet[asyncio.Task[None]] = WeakSet()
Work = Callable[[], Awaitable[object]]


def _ignore(name: str) -> None:
    del name


def _nothing() -> None: ...


class Supervised:
    """One background task."""

    def __init__(
        self,
        name: str,
        work: Work,
        *,
        ends: bool = False,
        failed: Callable[[str], None] = _ignore,
        changed: Callable[[], None] = _nothing,
        about: Mapping[str, str] | None = None,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        """`ends`: whether the work may return; otherwise that is a failure too.

        `failed` is called with the name at each failure (to count it), `changed` whenever `failure` changes; `about` is
        added to what is logged.
        """
        self.name, self._work, self._ends = name, work, ends
        self._failed, self._changed, self._about = failed, changed, dict(about or {})
        self._longest = longest_pause
        self._task: asyncio.Task[None] | None = None
        self._recovering: asyncio.TimerHandle | None = None
        self._interruption: Exception | None = None
        self._working = False
        self.failure = ""
        """Why it is down, or was until a moment ago; empty while it is well."""
        self.failures = 0
        """How often it has failed since it was made."""

    @property
    def running(self) -> bool:
        """Whether it was started and has neither been stopped nor come to its end; also true during a pause."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin; without effect while it is running."""
        if not self.running:
            self._task = asyncio.create_task(self._run(), name=self.name)
            _SUPERVISED.add(self._task)

    async def stop(self) -> None:
        """End, and wait for the end."""
        self._forget_timer()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def ended(self, seconds: float) -> None:
        """Wait until it has come to its end by itself, at most so many seconds."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)

    def interrupt(self, error: Exception) -> None:
        """Have the work fail with this error, wherever it is; without effect before it began and during a pause."""
        if self._task is not None and self._working:
            self._interruption = error
            self._task.cancel()

    async def _run(self) -> None:
        loop, pause = asyncio.get_running_loop(), min(FIRST_PAUSE, self._longest)
        while True:
            begun = loop.time()
            error = await self._attempt()
            if error is None:
                self._set("")
                return
            if loop.time() - begun >= max(STEADY, 2 * pause):
                pause = min(FIRST_PAUSE, self._longest)
            await self._pause(error, pause)
            self._recovering = loop.call_later(max(STEADY, 2 * pause), self._set, "")
            pause = min(2 * pause, self._longest)

    async def _attempt(self) -> Exception | None:
        """Do the work; what it failed with, or None at its proper end."""
        task = asyncio.current_task()
        assert task is not None
        self._working = True
        try:
            await self._work()
        except asyncio.CancelledError:
            error, self._interruption = self._interruption, None
            if error is not None:
                task.uncancel()
                return error
            if task.cancelling():
                raise
            return RuntimeError("something that it waited for was cancelled")
        except Exception as caught:  # noqa: BLE001 - whatever it is, it is returned, logged and reported
            return caught
        finally:
            self._working = False
        return None if self._ends else RuntimeError("it ended, although it never should")

    async def _pause(self, error: Exception, seconds: float) -> None:
        self._forget_timer()
        self.failures += 1
        about = {"task": self.name, "again_in": seconds, **self._about}
        log.error("a background task failed and is started again", exc_info=error, extra=about)
        self._failed(self.name)
        self._set(reason(error))
        await asyncio.sleep(seconds)

    def _set(self, failure: str) -> None:
        if failure != self.failure:
            self.failure = failure
            self._changed()

    def _forget_timer(self) -> None:
        if self._recovering is not None:
            self._recovering.cancel()
            self._recovering = None


class SupervisedTasks:
    """The background tasks of one owner."""

    def __init__(self, *, failed: Callable[[str], None] = _ignore, longest_pause: float = LONGEST_PAUSE) -> None:
        self._failed, self._longest = failed, longest_pause
        self._tasks: dict[Hashable, Supervised] = {}
        self._vital: set[Hashable] = set()
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call this whenever `failures()` may be another."""
        self._listeners.append(listener)

    def start(self, name: str, work: Work) -> Supervised:
        """Start a vital task, which never ends by itself."""
        task = Supervised(name, work, failed=self._failed, changed=self.notify, longest_pause=self._longest)
        self._vital.add(name)
        return self._begin(name, task)

    def spawn(self, name: str, work: Work, *, of: str) -> Supervised:
        """Start a task for one piece of work; there is one of each name and piece at a time, and it may end."""
        key = (name, of)
        known = self._tasks.get(key)
        if known is not None and known.running:
            return known

        async def whole() -> None:
            await work()
            if self._tasks.get(key) is task:
                del self._tasks[key]

        about = {"of": of}
        task = Supervised(name, whole, ends=True, failed=self._failed, about=about, longest_pause=self._longest)
        return self._begin(key, task)

    def all(self) -> list[Supervised]:
        """Those that there are now."""
        return list(self._tasks.values())

    def vital(self) -> list[Supervised]:
        """Those without which the owner does not work."""
        return [self._tasks[key] for key in self._tasks if key in self._vital]

    def failures(self) -> dict[str, str]:
        """Names of vital tasks that are down, and why."""
        return {task.name: task.failure for task in self.vital() if task.failure}

    async def stop(self, name: str, *, of: str) -> None:
        """End the task of one piece of work, if there is one."""
        if task := self._tasks.pop((name, of), None):
            await task.stop()

    async def finish(self, name: str, seconds: float) -> None:
        """Wait, not for ever, until no task of this name is left."""
        tasks = [task for task in self.all() if task.name == name]
        await asyncio.gather(*(task.ended(seconds) for task in tasks))

    async def close(self) -> None:
        """End all of them."""
        tasks = self.all()
        self._tasks.clear()
        self._vital.clear()
        await asyncio.gather(*(task.stop() for task in tasks))

    def _begin(self, key: Hashable, task: Supervised) -> Supervised:
        assert key not in self._tasks or not self._tasks[key].running, f"{key} is running already"
        self._tasks[key] = task
        task.start()
        return task

    def notify(self) -> None:
        """Have the listeners look: something else of the owner's health has changed."""
        for listener in self._listeners:
            listener()


def is_supervised(task: asyncio.Task[None]) -> bool:
    """Whether a task is watched over by this module."""
    return task in _SUPERVISED


def reason(error: BaseException) -> str:
    """An error in one line of bounded length."""
    reported = " ".join(f"{type(error).__name__}: {error}".split())
    return reported if len(reported) <= LONGEST_REASON else reported[: LONGEST_REASON - 1] + "…"
