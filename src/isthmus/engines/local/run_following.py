"""Reporting changes as they happen.

The kernel says when a supervisor is gone (a pidfd becomes readable), which is right after it wrote the end, or
after somebody killed it: one event covers both. A slow look at the folder finds runs that another engine started.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable

from isthmus.engines.news import News

from .layout import Layout, read_record
from .observing import process_of
from .processes import boot_id, open_pidfd

log = logging.getLogger(__name__)


class RunFollower:
    """Follows all runs of a root, and notifies its subscribers which may have changed."""

    def __init__(self, layout: Layout, on_change: Callable[[str], None]) -> None:
        self._layout = layout
        self._on_change = on_change
        self._live: dict[str, int] = {}
        self._over: set[str] = set()
        self._news = News()

    def close(self) -> None:
        """Let go of every handle and end every subscription."""
        for run_id in list(self._live):
            self._let_go(run_id)
        self._news.close()

    def follow(self, run_id: str) -> None:
        """Follow a run that was started; report it now, and again when it ends."""
        if run_id not in self._live and run_id not in self._over:
            started = read_record(self._layout.run(run_id).started)
            if started is None:
                return
            fd, process = None, process_of(started)
            if process is not None and started.get("boot") == boot_id():
                try:
                    fd = open_pidfd(*process)
                except OSError:
                    return  # no descriptors left: the next look at the folder tries again
            if fd is None:
                self._over.add(run_id)
            else:
                self._live[run_id] = fd
                asyncio.get_running_loop().add_reader(fd, self._gone, run_id)
            self.notify(run_id)

    def rescan(self, present: set[str]) -> None:
        """Take note of which runs there are; those not seen before are followed."""
        self._over &= present
        for run_id in present - self._live.keys() - self._over:
            try:
                if self._layout.run(run_id).ended.exists():
                    self._over.add(run_id)
                    self.notify(run_id)
                else:
                    self.follow(run_id)
            except OSError as error:  # of one run: the others are looked at
                log.warning("the folder of a run cannot be read", extra={"run": run_id, "error": str(error)})

    def notify(self, run_id: str) -> None:
        """Its observation may be new."""
        self._on_change(run_id)
        self._news.notify({run_id})

    def forget(self, run_id: str) -> None:
        """It is gone."""
        self._over.discard(run_id)

    def subscribe(self) -> AsyncIterator[set[str]]:
        """Every run known now, and then those that change."""
        return self._news.subscribe(lambda: set(self._live) | self._over)

    def _gone(self, run_id: str) -> None:
        self._let_go(run_id)
        self._over.add(run_id)
        self.notify(run_id)

    def _let_go(self, run_id: str) -> None:
        fd = self._live.pop(run_id)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
