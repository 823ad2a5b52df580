"""What an agent keeps on its machine.

| path | what |
| --- | --- |
| `agent.json` | the control plane's address and authority, and the name of the site |
| `agent.key` | the private key, made here; it never leaves the machine |
| `agent.toml` | what the owner of the machine permits, if there is such a file |
| `contents/` | files sent along with jobs, by their digests |
| `site/` | the engine's own folder, with the runs; `site/machine` is a mark drawn when the machine joined |
"""

from __future__ import annotations

import fcntl
import json
import secrets
from pathlib import Path
from typing import IO, NamedTuple

from isthmus._kit.private_files import write_private
from isthmus.engines.agent.proving import mark_of
from isthmus.errors import Misconfigured

MACHINE_ID = Path("/etc/machine-id")


class Membership(NamedTuple):
    """Which site of which control plane the machine is."""

    url: str
    site: str
    authority: str
    """Certificates, in PEM, that vouch for the control plane: no others do."""
    proxy: str = ""
    """Address of the HTTP proxy on the way, `http://[user:password@]host:port`; empty: none."""


class AgentPlace:
    """The folder of one agent."""

    def __init__(self, data: Path) -> None:
        self.data = data.absolute()
        self.runs, self.contents, self.rules = self.data / "site", self.data / "contents", self.data / "agent.toml"
        self._membership, self._key, self._mark = (
            self.data / "agent.json",
            self.data / "agent.key",
            self.runs / "machine",
        )

    @property
    def joined(self) -> bool:
        """Whether the machine has joined."""
        return self._membership.exists()

    def make(self) -> None:
        """Create the folders; raises Misconfigured."""
        try:
            for folder in (self.data, self.runs):
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o711)  # others may pass through (jobs of other accounts run below) but not look around
            self.contents.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise Misconfigured(
                f"the folder {self.data} cannot be used ({error.strerror}); choose another with --data"
            ) from None

    def lock(self) -> IO[str]:
        """Take the folder for this process; raises Misconfigured when another one has it."""
        file = (self.data / "lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise Misconfigured(f"an agent runs already with the folder {self.data}") from None
        return file

    def machine(self, *, new: bool = False) -> str:
        """What distinguishes this machine and its folder from all others; raises Misconfigured if it is gone."""
        if new and not self._mark.exists():
            write_private(self._mark, secrets.token_hex(16))
        try:
            drawn = self._mark.read_text().strip()
        except OSError:
            raise Misconfigured(
                f"{self._mark} is gone, and with it perhaps what ran here; join again with a new invitation"
            ) from None
        try:
            here = MACHINE_ID.read_text().strip()
        except OSError:
            here = ""
        return mark_of(drawn, here)

    def key(self) -> str:
        """The private key; raises Misconfigured."""
        try:
            return self._key.read_text()
        except OSError as error:
            raise Misconfigured(f"the agent's key cannot be read ({error.strerror}); join again") from None

    def keep(self, membership: Membership, key: str) -> None:
        """The machine has joined."""
        write_private(self._key, key)
        write_private(self._membership, json.dumps(_said(membership), indent=2) + "\n")

    def membership(self) -> Membership:
        """Which site of which control plane; raises Misconfigured."""
        try:
            said = json.loads(self._membership.read_text())
            return Membership(**{name: said[name] for name in Membership._fields if name in said})
        except FileNotFoundError:
            raise Misconfigured(
                f"this machine has not joined with the folder {self.data}; `isthmus agents invite` on the control "
                "plane prints the command that does it"
            ) from None
        except (OSError, ValueError, TypeError) as error:
            raise Misconfigured(f"{self._membership} cannot be read ({error}); join again") from None


def _said(membership: Membership) -> dict[str, str]:
    """As it is kept. What is empty is left out: an agent of an older version knows less."""
    return {name: value for name, value in membership._asdict().items() if value}
