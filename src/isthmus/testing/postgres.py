"""A private PostgreSQL from Debian's package, for tests and for trying things out.

It lives in a folder of its own, listens on a socket in that folder only and trusts whoever can reach the socket.
PostgreSQL refuses to run as root; as root, the server is run under the account `postgres` or `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from isthmus.errors import Misconfigured

_PATIENCE = 60.0


class Postgres:
    """One PostgreSQL server. `durable=False` saves time where nothing is said about crashes."""

    def __init__(self, durable: bool = True, settings: dict[str, str] | None = None) -> None:
        self._programs = find_programs()
        # Short, because the name of a socket may have a hundred characters only.
        self._folder = Path(tempfile.mkdtemp(prefix="isthmus-pg-"))
        self._account = _account()
        self._settings = {"listen_addresses": "", "unix_socket_directories": str(self._folder), "port": "5432"}
        self._settings |= {} if durable else {"fsync": "off", "full_page_writes": "off"}
        self._settings |= settings or {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"postgresql://isthmus@/postgres?host={self._folder}&port=5432"

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Make the database when there is none, start the server, wait until it answers."""
        if not (self._folder / "data").exists():
            self._make()
        deadline = time.monotonic() + _PATIENCE
        while not self._launch(deadline):
            # After a kill, children of the old server may need a moment to end; until then a new one is refused.
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop the server in order, ending its connections."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill the postmaster as `kill -9` does. Its children notice and end by themselves."""
        self._signal(signal.SIGKILL)

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        if self._process is not None:
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Postgres:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _make(self) -> None:
        if self._account is not None:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
        command = [
            str(self._programs / "initdb"), "--pgdata", str(self._folder / "data"), "--username", "isthmus",
            "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync",
        ]  # fmt: skip
        made = subprocess.run(
            command, capture_output=True, text=True, cwd=self._folder, check=False, **self._as_account()
        )
        if made.returncode:
            raise Misconfigured(f"initdb failed: {made.stderr.strip()}")

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    def _launch(self, deadline: float) -> bool:
        """Start the server and wait until it answers; false when it ended instead."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._folder / "data"), *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **self._as_account(),
            )
        ready = [str(self._programs / "pg_isready"), "--host", str(self._folder), "--port", "5432", "--quiet"]
        while subprocess.run(ready, check=False).returncode:
            if time.monotonic() > deadline:
                reported = (self._folder / "log").read_text(errors="replace")[-2000:]
                raise Misconfigured(f"PostgreSQL did not start; it says: {reported}")
            if self._process.poll() is not None:
                return False
            time.sleep(0.05)
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_PATIENCE)
            self._process = None


def find_programs() -> Path:
    """The folder of PostgreSQL's programs: the newest of Debian's package, or what is on the PATH."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parent.parent.name), reverse=True
    )
    if versions:
        return versions[0].parent
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    raise Misconfigured("PostgreSQL is not installed; install Debian's package postgresql")


def _account() -> pwd.struct_passwd | None:
    """Under whom to run it: None for ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise Misconfigured("PostgreSQL refuses to run as root and there is no account postgres or nobody; make one")
