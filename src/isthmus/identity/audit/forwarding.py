"""Forwarding: audit entries to syslog or to a file, beside the log itself.

A thread sends them, so that nobody waits for another machine. Where that one is away, entries are dropped and a warning
is logged: the log itself has them. A file is opened for each batch, so that others may move it away.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from pathlib import Path
from typing import NamedTuple

from isthmus.errors import Invalid

log = logging.getLogger(__name__)

FORMS = "syslog, syslog://HOST:PORT (UDP), syslog+tcp://HOST:PORT, or the path of a file"
_WAITING = 10_000
_AT_ONCE = 500
_SECONDS = 5.0
_HEAD = b"<86>isthmus-audit: "
"""Facility authpriv, severity informational."""


class ForwardPlace(NamedTuple):
    """Where entries go: a file, or a syslog server by `unix`, `udp` or `tcp`."""

    by: str
    path: str = ""
    host: str = ""
    port: int = 0


def parse_place(text: str) -> ForwardPlace:
    """Read one of the FORMS; raises Invalid."""
    if text == "syslog":
        return ForwardPlace("unix", "/dev/log")
    scheme, found, rest = text.partition("://")
    by = {"syslog": "udp", "syslog+tcp": "tcp"}.get(scheme)
    host, _, port = rest.rpartition(":")
    if found and by and host and port.isdecimal() and 0 < int(port) < 65536:
        return ForwardPlace(by, host=host.strip("[]"), port=int(port))
    if Path(text).is_absolute():
        return ForwardPlace("file", text)
    raise Invalid(f"audit entries cannot be forwarded to {text!r}; write {FORMS}")


class Forwarder:
    """One place that gets every entry."""

    def __init__(self, place: ForwardPlace) -> None:
        self._place = place
        self._queue: queue.Queue[str | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, name="audit forwarding", daemon=True)
        self._socket: socket.socket | None = None
        self._warned = -60.0

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Send what waits, for a moment."""
        try:
            self._queue.put(None, timeout=_SECONDS)
            self._thread.join(_SECONDS)
        except queue.Full:
            self._warn("too many wait")

    def __call__(self, line: str) -> None:
        """Send a line soon."""
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self._warn("too many wait")

    def _run(self) -> None:
        going = True
        while going:
            lines = [self._queue.get()]
            while len(lines) < _AT_ONCE and not self._queue.empty():
                lines.append(self._queue.get_nowait())
            going = None not in lines
            try:
                self._send([line.encode() for line in lines if line is not None])
            except OSError as error:
                self._hang_up()
                self._warn(str(error))
        self._hang_up()

    def _send(self, lines: list[bytes]) -> None:
        if self._place.by == "file":
            descriptor = os.open(self._place.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.writelines(line + b"\n" for line in lines)
            return
        for line in lines:
            connected = self._socket is not None
            try:
                self._to_syslog(line)
            except OSError:
                self._hang_up()
                if not connected:
                    raise
                self._to_syslog(line)  # the server was started anew meanwhile

    def _to_syslog(self, line: bytes) -> None:
        if self._socket is None:
            self._socket = self._connect()
        self._socket.sendall(_HEAD + line + (b"\n" if self._place.by == "tcp" else b""))

    def _connect(self) -> socket.socket:
        place = self._place
        if place.by == "tcp":
            return socket.create_connection((place.host, place.port), _SECONDS)
        if place.by == "unix":
            family, address = socket.AF_UNIX, place.path
            found = socket.socket(family, socket.SOCK_DGRAM)
            found.connect(address)
            return found
        inet, kind, _, _, where = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_DGRAM)[0]
        found = socket.socket(inet, kind)
        found.connect(where)
        return found

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _warn(self, why: str) -> None:
        if time.monotonic() - self._warned >= 60:
            self._warned = time.monotonic()
            log.warning("audit entries are not forwarded", extra={"place": str(self._place), "error": why})
