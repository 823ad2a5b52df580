"""Watchdog: notices when the event loop is blocked, says where, and counts it.

Everything the control plane does for anybody goes through one event loop. A timer on the loop notes the time; a thread
looks at the note. When it is old, the loop is stuck in some function: the thread writes the stack of the loop's thread
into the log, once for each block, and counts it. If the thread itself slept too long, the whole process or machine did
(it was stopped, or is overloaded), which says nothing about the loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback

from isthmus.metrics import LOOP_BLOCKED, LOOP_BLOCKED_SECONDS

logger = logging.getLogger(__name__)

BEAT_SECONDS = 0.1
BLOCKED_SECONDS = 1.0
"""A loop that does not turn for so long is blocked: health is promised within it."""
STACK_LINES = 40


class Watchdog:
    """Watches the loop it is started on."""

    def __init__(self, blocked_seconds: float = BLOCKED_SECONDS) -> None:
        self._blocked_seconds = blocked_seconds
        self._beat = time.monotonic()
        self._end = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop_thread = 0
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._loop_thread = threading.get_ident()
        self._note(asyncio.get_running_loop())
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._end.set()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.join()

    def _note(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beat = time.monotonic()
        self._timer = loop.call_later(BEAT_SECONDS, self._note, loop)

    def _watch(self) -> None:
        blocked_since: float | None = None
        looked = time.monotonic()
        while not self._end.wait(BEAT_SECONDS):
            now, before = time.monotonic(), looked
            looked = now
            if now - before > self._blocked_seconds:
                continue
            beat = self._beat
            if blocked_since is not None and beat > blocked_since:
                LOOP_BLOCKED_SECONDS.inc(beat - blocked_since)
                logger.warning("event loop goes on", extra={"blocked_seconds": round(beat - blocked_since, 2)})
                blocked_since = None
            if blocked_since is None and now - beat > self._blocked_seconds:
                blocked_since = beat
                LOOP_BLOCKED.inc()
                logger.warning("event loop is blocked", extra={"seconds": round(now - beat, 2), "at": self._where()})

    def _where(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        return "".join(traceback.format_stack(frame)[-STACK_LINES:]) if frame is not None else "unknown"
