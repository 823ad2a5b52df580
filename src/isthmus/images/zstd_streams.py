"""Layers compressed by zstd: decompressed by the program of that name, which is a child with pipes on both sides.

The standard library reads zstd from Python 3.14 on; until then this needs nothing that has to be installed for Python,
so that it also runs where Isthmus is not. The program refuses windows of more than 128 MiB by itself.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable

PROGRAM = "zstd"
_PIECE = 1 << 18


class ZstdStream:
    """What comes out of a zstd stream; `feed` gives its next piece, and nothing at its end. Raises OSError."""

    def __init__(self, feed: Callable[[], bytes]) -> None:
        self._feed = feed
        self._failed: Exception | None = None
        self._child = subprocess.Popen(
            [PROGRAM, "-d", "-c", "-q", "--no-progress"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._writer = threading.Thread(target=self._write, name="zstd", daemon=True)
        self._writer.start()

    def _write(self) -> None:
        """In a thread: a program that waits to be read must not keep us from reading."""
        assert self._child.stdin is not None
        try:
            with self._child.stdin as pipe:
                while piece := self._feed():
                    pipe.write(piece)
        except BrokenPipeError:
            pass  # it has ended: how, its exit code says
        except Exception as error:  # noqa: BLE001 - of another thread: raised where it is read
            self._failed = error

    def read(self) -> bytes:
        """The next piece; nothing at the end. Raises ValueError for what is no zstd, or damaged."""
        assert self._child.stdout is not None
        if piece := self._child.stdout.read1(_PIECE):  # type: ignore[attr-defined]
            return bytes(piece)
        self._writer.join()
        if self._child.wait():
            raise ValueError("its compressed content is damaged (zstd)")
        if self._failed is not None:
            raise self._failed
        return b""

    def close(self) -> None:
        """Let go, wherever it is."""
        self._child.kill()
        assert self._child.stdout is not None
        self._child.stdout.close()
        self._child.wait()
        self._writer.join()
