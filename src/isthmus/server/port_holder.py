"""The holder: a small process that keeps the API's port while no server has it. Started as a script.

Jobs go on while the server is down, and a job on the machine's network could listen on the port meanwhile, be taken
for the server, and keep it from starting. So a copy of the listening socket lives here. A server that starts connects
and is handed the socket; its connection, left open, says that it lives. While none does, whoever connects to the port
is let go at once (a reset), as if nothing listened there. When no server and no run of its local sites lives any more
there is nobody to keep the port from, and the holder leaves.

It speaks on a Unix socket in the data folder, which only the owner of the instance may open: `take`, answered by the
socket and the folders below which runs are looked for, and `root PATH`, one more such folder. Every server starts a
holder of its own version, which takes the place of the one before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ADDRESS = "port.sock"
LOOK_SECONDS = 5.0
STARTING_SECONDS = 60.0
"""A run that was prepared so recently may be about to start, though nothing of it runs yet."""
_RESET = struct.pack("ii", 1, 0)
_MOST_ROOTS = 1000


class PortHolder:
    """Holds one listening socket."""

    def __init__(self, port: socket.socket, listener: socket.socket, roots: list[str]) -> None:
        self._port, self._listener, self._roots = port, listener, roots
        self._ready = selectors.DefaultSelector()
        self._servers: dict[socket.socket, bytes] = {}
        self._own = os.stat(ADDRESS).st_ino
        self._next_look = time.monotonic() + LOOK_SECONDS  # by then the server that started us has connected

    def serve(self) -> None:
        """Until nobody needs it."""
        self._ready.register(self._listener, selectors.EVENT_READ)
        while self._needed():
            for key, _ in self._ready.select(LOOK_SECONDS):
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                if ready is self._listener:
                    self._greet()
                elif ready is self._port:
                    self._let_go()
                else:
                    self._hear(ready)
        self._port.close()  # first: whoever finds nobody here binds it
        if self._in_place():
            Path(ADDRESS).unlink()

    def _needed(self) -> bool:
        if self._servers:
            return True
        if not self._in_place():
            return False
        if (now := time.monotonic()) < self._next_look:
            return True
        self._next_look = now + LOOK_SECONDS
        return any(live(run) for root in self._roots for run in runs_below(Path(root)))

    def _in_place(self) -> bool:
        """Whether the next server would find us: no other holder took our place, and the folder is there."""
        try:
            return os.stat(ADDRESS).st_ino == self._own
        except OSError:
            return False

    def _greet(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(2.0)
        self._servers[connection] = b""
        self._ready.register(connection, selectors.EVENT_READ)
        with contextlib.suppress(KeyError):
            self._ready.unregister(self._port)

    def _hear(self, server: socket.socket) -> None:
        try:
            heard = server.recv(8192)
        except OSError:
            heard = b""
        if not heard or len(self._servers[server]) > 2**16:
            self._ready.unregister(server)
            del self._servers[server]
            server.close()
            if not self._servers:
                self._next_look = 0.0  # at once: without runs the port is free now
                self._ready.register(self._port, selectors.EVENT_READ)
            return
        *lines, rest = (self._servers[server] + heard).split(b"\n")
        self._servers[server] = rest
        for line in lines:
            word, _, argument = line.decode("utf-8", "surrogateescape").partition(" ")
            if word == "take":
                with contextlib.suppress(OSError):
                    socket.send_fds(server, [json.dumps(self._roots).encode()], [self._port.fileno()])
            elif word == "root" and argument not in self._roots and len(self._roots) < _MOST_ROOTS:
                self._roots.append(argument)

    def _let_go(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._port.accept()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.close()


def runs_below(root: Path) -> Iterator[Path]:
    """Folders of runs: of one site, or of all sites of a data folder."""
    with contextlib.suppress(OSError):
        yield from (root / "runs").iterdir()
    with contextlib.suppress(OSError):
        for site in root.iterdir():
            with contextlib.suppress(OSError):
                yield from (site / "runs").iterdir()


def live(run: Path) -> bool:
    """Whether something of a run may be running: its supervisor lives, or it may be about to."""
    if (run / "ended").exists():
        return False
    try:
        if not (run / "started").exists():
            return time.time() - run.stat().st_mtime < STARTING_SECONDS
        descriptor = os.open(run / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def main(data: str, descriptor: int, roots: list[str]) -> None:
    """Hold the port, in the background; returns (exits) once the next server could take it."""
    os.chdir(data)  # the socket's path is relative: absolute ones may be too long
    os.umask(0o077)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(FileNotFoundError):
        Path(f"{ADDRESS}.new").unlink()
    listener.bind(f"{ADDRESS}.new")
    listener.listen(16)
    Path(f"{ADDRESS}.new").replace(ADDRESS)
    if os.fork():
        os._exit(0)
    os.setsid()
    PortHolder(socket.socket(fileno=descriptor), listener, roots).serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
