"""The agent as a service of its machine: by systemd where there is systemd, else as a plain process."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

from isthmus.engines.agent.proving import mark_of
from isthmus.errors import Misconfigured

from .places import AgentPlace

_BOOTED = Path("/run/systemd/system")
_STOP_SECONDS = 30.0


class AgentService:
    """The service of the agent in a folder; `launcher` is what it starts."""

    def __init__(self, place: AgentPlace, launcher: Path, default: Path) -> None:
        """`default` is the folder that agents have by default: its unit has the plain name."""
        self._place, self._launcher = place, launcher
        self.name = "isthmus-agent" + ("" if place.data == default else f"-{mark_of(str(place.data))[:8]}")
        self._root = os.geteuid() == 0
        self._systemctl = ["systemctl"] if self._root else ["systemctl", "--user"]
        self._pid = place.data / "agent.pid"

    @property
    def unit(self) -> Path:
        """The file of the unit."""
        if self._root:
            return Path("/etc/systemd/system") / f"{self.name}.service"
        home = os.environ.get("XDG_CONFIG_HOME") or ""
        config = Path(home) if home.startswith("/") else Path.home() / ".config"
        return config / "systemd" / "user" / f"{self.name}.service"

    def start(self) -> str:
        """Start it, now and whenever the machine starts; says how. Replaces what ran before. Raises Misconfigured."""
        self.stop()
        if self._has_systemd():
            self.unit.parent.mkdir(parents=True, exist_ok=True)
            self.unit.write_text(unit_text(self._launcher, root=self._root))
            self._call("daemon-reload")
            self._call("enable", "--now", f"{self.name}.service")
            if not self._root:
                # Without it the agent would end when its owner signs out.
                subprocess.run(["loginctl", "enable-linger"], capture_output=True, check=False)
            return f"systemd runs it: {' '.join(self._systemctl)} status {self.name}"
        log = self._place.data / "agent.log"
        with log.open("ab") as output:
            child = subprocess.Popen(
                ["/bin/sh", str(self._launcher)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        self._pid.write_text(f"{child.pid}\n")
        child.returncode = 0  # it outlives us on purpose
        return (
            f"it runs in the background and writes {log}; there is no systemd here, so it starts with the machine only "
            f"if you have it so, by crontab: @reboot /bin/sh {self._launcher}"
        )

    def stop(self) -> None:
        """Stop it, and have it no longer started; jobs go on."""
        if self.unit.exists():
            subprocess.run(
                [*self._systemctl, "disable", "--now", f"{self.name}.service"], capture_output=True, check=False
            )
            self.unit.unlink()
            subprocess.run([*self._systemctl, "daemon-reload"], capture_output=True, check=False)
        pid = self._running()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + _STOP_SECONDS
            while self._running() == pid:
                if time.monotonic() > deadline:
                    raise Misconfigured(f"the agent, process {pid}, does not end")
                time.sleep(0.05)
        self._pid.unlink(missing_ok=True)

    def _running(self) -> int | None:
        """The plain process, if it lives and is this agent's: numbers are used again."""
        try:
            pid = int(self._pid.read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(self._launcher) in words else None

    def _has_systemd(self) -> bool:
        if not _BOOTED.is_dir() or shutil.which("systemctl") is None:
            return False
        return subprocess.run([*self._systemctl, "show-environment"], capture_output=True, check=False).returncode == 0

    def _call(self, *words: str) -> None:
        done = subprocess.run([*self._systemctl, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Misconfigured(f"systemctl {' '.join(words)} failed: {done.stderr.strip()[:500]}")


def unit_text(launcher: Path, *, root: bool) -> str:
    """The unit."""
    start = " ".join(shlex.quote(word) for word in ("/bin/sh", str(launcher))).replace("%", "%%")
    return f"""\
[Unit]
Description=Agent of Isthmus
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={start}
Restart=always
RestartSec=2
# Jobs go on while the agent is restarted, and make cgroups of their own.
KillMode=process
Delegate=yes

[Install]
WantedBy={"multi-user.target" if root else "default.target"}
"""
