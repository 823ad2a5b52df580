"""Running other programs without making everybody wait.

A server's event loop (uvloop's, and asyncio's with it) starts a child by forking the whole process, and nothing else
happens meanwhile: the more memory the server has, the longer. `subprocess.Popen` uses vfork where nothing has to be
done between fork and exec, which copies nothing; so it is called here, in a thread of a small pool. Whatever is read is
bounded, and a child that does not end in time is ended with all that it started.

A child whose input is not ready can be started all the same: most of the time that a small program takes goes by before
it reads. It is given its input, in one write that is read whole or not at all, when the caller is ready; if that fails,
or this process dies first, it finds its input empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

MOST_OUTPUT = 256 * 2**20
"""Bytes of one stream that are read. More is an error of the program, and not kept."""
_PIECE = 1 << 16

Ready = Callable[[], Awaitable[None]]
"""What must be done before a child is given its input."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What a child left."""

    code: int
    """Its exit code; negative: the signal that ended it."""
    out: bytes = b""
    err: bytes = b""


class TooMuchOutput(OSError):
    """A child wrote more than is read."""


class Children:
    """Starts children in threads of its own: at most so many at once, others wait for their turn."""

    def __init__(self, at_once: int, name: str = "children") -> None:
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=name)

    def close(self) -> None:
        """Let go. Children that are under way are not waited for; their threads end with them."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes = b"",
        cwd: str = "/",
        seconds: float,
        ready: Ready | None = None,
    ) -> Ended:
        """Run to the end; raises TimeoutError (it was killed), OSError (it could not be started).

        With `ready` it is started at once, and given its input when that is done; what that raises is raised.
        """
        if ready is not None and len(stdin) <= select.PIPE_BUF:
            return await self._run_ahead(words, env, stdin, cwd, seconds, ready)
        if ready is not None:
            await ready()
        call = _Child(list(words), dict(env), stdin, cwd, seconds)
        future = asyncio.get_running_loop().run_in_executor(self._threads, call.run)
        try:
            return await future
        except asyncio.CancelledError:
            call.kill()
            raise

    async def _run_ahead(
        self, words: Sequence[str], env: Mapping[str, str], stdin: bytes, cwd: str, seconds: float, ready: Ready
    ) -> Ended:
        reads, writes = os.pipe()
        call = _Child(list(words), dict(env), b"", cwd, seconds, reads)
        future = asyncio.get_running_loop().run_in_executor(self._threads, call.run)
        try:
            try:
                await ready()
                with contextlib.suppress(BrokenPipeError):  # it ended without reading: its exit code says why
                    os.write(writes, stdin)
            finally:
                os.close(writes)
            return await future
        except BaseException:
            call.kill()
            await asyncio.gather(future, return_exceptions=True)
            raise


class _Child:
    """One child, in a thread."""

    def __init__(
        self, words: list[str], env: dict[str, str], stdin: bytes, cwd: str, seconds: float, reads: int | None = None
    ) -> None:
        self._words, self._env, self._stdin, self._cwd, self._seconds = words, env, stdin, cwd, seconds
        self._reads = reads
        """A pipe that it reads in place of `stdin`; closed when it has been started."""
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._lock = threading.Lock()

    def kill(self) -> None:
        """End it with all that it started, or keep it from starting. From any thread."""
        with self._lock:  # until it is waited for, nobody else can have its number
            self._killed = True
            if self._process is not None and self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def run(self) -> Ended:
        """In the thread."""
        deadline = time.monotonic() + self._seconds
        with self._lock:
            try:
                process = self._process = self._start()
            finally:
                if self._reads is not None:
                    os.close(self._reads)
        ended = os.pidfd_open(process.pid)
        try:
            out, err = _talk(process, ended, self._stdin, deadline)
        except BaseException:
            self.kill()
            raise
        finally:
            select.select([ended], [], [])
            with self._lock:
                process.wait()
            os.close(ended)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        return Ended(process.returncode, out, err)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._killed:
            raise TimeoutError
        given = subprocess.PIPE if self._stdin else subprocess.DEVNULL
        return subprocess.Popen(
            self._words,
            stdin=given if self._reads is None else self._reads,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            bufsize=0,
            start_new_session=True,
        )


def _talk(process: subprocess.Popen[bytes], ended: int, stdin: bytes, deadline: float) -> tuple[bytes, bytes]:
    """Write what it shall read while it writes what we read, until it ends; raises TimeoutError, TooMuchOutput."""
    assert process.stdout is not None
    assert process.stderr is not None
    read: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    sizes, left = dict.fromkeys(read, 0), memoryview(stdin)
    waits = select.poll()
    for fd in (*read, ended):
        waits.register(fd, select.POLLIN)
    open_ = {*read, ended}
    if process.stdin is not None:
        os.set_blocking(process.stdin.fileno(), False)
        waits.register(process.stdin.fileno(), select.POLLOUT)
        open_.add(process.stdin.fileno())
    while open_:
        events = waits.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not events and time.monotonic() >= deadline:
            raise TimeoutError
        for fd, _ in events:
            if fd in read:
                if piece := os.read(fd, _PIECE):
                    read[fd].append(piece)
                    sizes[fd] += len(piece)
                    if sizes[fd] > MOST_OUTPUT:
                        raise TooMuchOutput(f"it wrote more than {MOST_OUTPUT >> 20} MiB")
                    continue
            elif fd != ended:
                left = left[_write(fd, left) :]
                if left:
                    continue
            waits.unregister(fd)
            open_.discard(fd)
            if process.stdin is not None and fd == process.stdin.fileno():
                process.stdin.close()
                process.stdin = None
    out, err = (b"".join(pieces) for pieces in read.values())
    return out, err


def _write(fd: int, data: memoryview) -> int:
    try:
        return os.write(fd, data[:_PIECE])
    except BlockingIOError:
        return 0
    except BrokenPipeError:  # it does not read: what it makes of that, its exit code says
        return len(data)
