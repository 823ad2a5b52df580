"""Lifelines: the streams that are open, so that a stopping server can end them instead of waiting for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Lifelines:
    """Every open stream, by the function that ends it."""

    def __init__(self) -> None:
        self._ends: dict[object, Callable[[], None]] = {}
        self.closed = False

    def __len__(self) -> int:
        return len(self._ends)

    @contextmanager
    def hold(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` when the server stops; at once if it is stopping already."""
        held = object()
        self._ends[held] = end
        try:
            if self.closed:
                end()
            yield
        finally:
            del self._ends[held]

    def close(self) -> None:
        """End every stream now, and those that come."""
        self.closed = True
        for end in list(self._ends.values()):
            end()
