"""A login node for the lab: sshd on a private port of this machine, with keys of its own."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from isthmus.errors import Misconfigured
from isthmus.lab import processes

from .layout import SlurmLabPlace

_NAME = "sshd"


class LoginNode:
    """sshd for some accounts of this machine; each with a key in `folder/<account>`."""

    def __init__(self, place: SlurmLabPlace) -> None:
        self._place = place
        self.folder = place.root / "ssh"
        self.port = place.port(4)

    @property
    def known_hosts(self) -> Path:
        """The host's key, for those who connect."""
        return self.folder / "known_hosts"

    def key_of(self, user: str) -> Path:
        """The private key of an account."""
        return self.folder / user

    def up(self, users: Sequence[str]) -> None:
        """Start it, and wait until it answers."""
        program = shutil.which("sshd", path=processes.PATH)
        if program is None:
            raise Misconfigured("The login node needs sshd. Install it with: apt install openssh-server")
        self.folder.mkdir(exist_ok=True)
        self.folder.chmod(0o755)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        for name in ("host", *users):
            if not self.key_of(name).exists():
                processes.call(
                    self._place, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(self.key_of(name))
                )
        for user in users:
            allowed = self.folder / f"{user}.allowed"
            allowed.write_text(self.key_of(user).with_suffix(".pub").read_text())
            allowed.chmod(0o644)
        host = self.key_of("host").with_suffix(".pub").read_text()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {host}")
        (self.folder / "config").write_text(self._config())
        if processes.pid_of(self._place, _NAME) is None:
            words = [program, "-D", "-e", "-f", str(self.folder / "config")]
            processes.spawn(self._place, _NAME, words)
        if not processes.wait(self._answers, 20):
            raise Misconfigured(f"sshd does not answer; see {self._place.log(_NAME)}.")

    def down(self) -> None:
        """Stop it; sessions that are open end too."""
        processes.stop(self._place, _NAME)

    def drop(self) -> None:
        """Cut every session at once, as a network that fails would; sshd itself goes on."""
        processes.kill_all(self._sessions)

    def _sessions(self) -> list[int]:
        """The sshd processes below ours: they write their titles over their environments, so that marks are gone."""
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "comm").read_text().startswith(_NAME):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    parents[int(entry.name)] = int(fields[1]) if fields[0] != "Z" else 0
        main = processes.pid_of(self._place, _NAME)
        found = {pid for pid, parent in parents.items() if parent == main}
        while below := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= below
        return sorted(found)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5) as link:
            return link.recv(4) == b"SSH-"
        return False

    def _config(self) -> str:
        lines = {
            "Port": str(self.port),
            "ListenAddress": "127.0.0.1",
            "HostKey": str(self.key_of("host")),
            "PidFile": "none",
            "AuthorizedKeysFile": f"{self.folder}/%u.allowed",
            "StrictModes": "no",
            "UsePAM": "yes",  # without it accounts that have no password are refused
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "Subsystem": "sftp internal-sftp",
        }
        return "".join(f"{name} {value}\n" for name, value in lines.items())
