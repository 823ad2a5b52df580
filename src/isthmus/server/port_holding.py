"""Finding the API's port held, and having it held on; `port_holder.py` tells by whom and why."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

from .port_holder import ADDRESS

log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("port_holder.py")
_SECONDS = 5.0
_MOST_ANSWER = 2**20


class HeldPort:
    """The listening socket of one server, which outlives it."""

    def __init__(self, data: Path, listener: socket.socket, roots: list[str], former: socket.socket | None) -> None:
        self.listener = listener
        self._data, self._former = data, former
        self._roots = roots
        self._lifeline: socket.socket | None = None
        self._starting: asyncio.Task[None] | None = None

    def hold(self) -> None:
        """Have it held from now on; not waited for. One that cannot be started is logged, and nothing else fails."""
        self._starting = asyncio.create_task(self._hold(self.listener.dup()), name="hold the port")

    def note_root(self, root: Path) -> None:
        """Runs are below this folder too."""
        if str(root) not in self._roots and str(root.parent) not in self._roots:
            self._roots.append(str(root))
            self._tell(f"root {root}")

    async def close(self) -> None:
        """Let go: the holder stays while there are runs."""
        if self._starting is not None:
            await asyncio.wait([self._starting])
        for connection in (self.listener, self._lifeline, self._former):
            if connection is not None:
                connection.close()

    async def _hold(self, copy: socket.socket) -> None:
        known = list(self._roots)
        try:
            with copy:
                self._lifeline = await asyncio.to_thread(_start, self._data, copy, known)
            for root in self._roots:
                if root not in known:
                    self._tell(f"root {root}")
        except (OSError, subprocess.SubprocessError) as error:
            log.warning("the port is not held while the server is down", extra={"error": str(error)})
            return
        if self._former is not None:
            self._former.close()  # it sees that another took its place, and leaves
            self._former = None

    def _tell(self, line: str) -> None:
        if self._lifeline is not None:
            with contextlib.suppress(OSError):
                self._lifeline.sendall(os.fsencode(line) + b"\n")


def held(data: Path, sites: Path, host: str, port: int) -> HeldPort | None:
    """The port as a server before us left it held; None if it is to be bound."""
    try:
        connection = _connect(data)
    except OSError:
        return None
    try:
        connection.sendall(b"take\n")
        answer, descriptors, _, _ = socket.recv_fds(connection, _MOST_ANSWER, 1)
        listener = socket.socket(fileno=descriptors[0])
        roots = [root for root in json.loads(answer) if isinstance(root, str)]
    except (OSError, ValueError, IndexError):
        connection.close()
        return None
    if port and listener.getsockname()[:2] == (_address(host), port):
        listener.setblocking(False)
        return HeldPort(data, listener, [str(sites), *(root for root in roots if root != str(sites))], connection)
    # This server listens elsewhere: the other port is nobody's any more.
    listener.close()
    with contextlib.suppress(FileNotFoundError):
        (data / ADDRESS).unlink()
    connection.close()
    return None


def _address(host: str) -> str:
    with contextlib.suppress(OSError):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return str(socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)[0][4][0])
    return host


def _start(data: Path, listener: socket.socket, roots: list[str]) -> socket.socket:
    """Start a holder in the place of the one before; our connection to it."""
    descriptor = listener.fileno()
    with (data / "holder.log").open("ab") as journal:
        os.fchmod(journal.fileno(), 0o600)
        subprocess.run(
            [sys.executable, "-I", "-S", str(_PROGRAM), str(data), str(descriptor), json.dumps(roots)],
            stdin=subprocess.DEVNULL,
            stdout=journal,
            stderr=journal,
            env={},
            cwd="/",
            pass_fds=(descriptor,),
            start_new_session=True,
            timeout=_SECONDS * 6,
            check=True,
        )
    return _connect(data)


def _connect(data: Path) -> socket.socket:
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_SECONDS)
        connection.connect(f"/proc/self/fd/{folder}/{ADDRESS}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(folder)
    return connection
