"""Progress while files are sent: a bar on a terminal, nothing elsewhere, and nothing for what is sent in a moment."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.client.folders import Progress

_MOMENT = 0.5


@contextmanager
def sending(quiet: bool = False) -> Iterator[Progress | None]:
    """A callback for bytes sent, or None where nobody looks."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar()
    try:
        yield bar.update
    finally:
        bar.close()


class _Bar:
    def __init__(self) -> None:
        self._began: float | None = None
        self._rich: Any = None
        self._task: Any = None

    def update(self, done: int, total: int) -> None:
        """So much is done."""
        if self._rich is None:
            self._began = self._began or time.monotonic()  # when sending began: reading the folder may take long
            if time.monotonic() - self._began < _MOMENT:
                return
            self._start(total)
        self._rich.update(self._task, completed=done)

    def close(self) -> None:
        """Take the bar away."""
        if self._rich is not None:
            self._rich.stop()

    def _start(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("sending files"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._rich = Progress(*columns, console=Console(stderr=True), transient=True)
        self._rich.start()
        self._task = self._rich.add_task("send", total=total)
