"""Where everything of a registry lab is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isthmus.lab.processes import PATH

USER = "lab"
"""The account that may fetch and push."""
IMAGE = "lab/tiny:1"
"""The image that is there from the beginning: a shell and the usual small programs."""


@dataclass(frozen=True, slots=True)
class RegistryLabPlace:
    """The folder of a registry. Its port is drawn when it is first started, and stays its own."""

    root: Path

    @property
    def exists(self) -> bool:
        """Whether it was set up."""
        return (self.root / "port").exists()

    @property
    def host(self) -> str:
        """What images of it are called by."""
        return f"localhost:{(self.root / 'port').read_text().strip()}"

    @property
    def mark(self) -> tuple[str, str]:
        """What distinguishes its process from others."""
        return "ISTHMUS_REGISTRY_LAB", str(self.root)

    @property
    def path(self) -> str:
        """PATH of all that it runs."""
        return PATH

    @property
    def variables(self) -> dict[str, str]:
        """What all that it runs finds in its environment beside."""
        return {}

    @property
    def keys(self) -> Path:
        """Certificates and keys."""
        return self.root / "keys"

    @property
    def authority(self) -> Path:
        """The certificate that it is trusted by."""
        return self.keys / "ca.crt"

    @property
    def password(self) -> Path:
        """The password of its account, readable by its owner only."""
        return self.root / "password"

    def pid_file(self, name: str) -> Path:
        """Where the process id of a daemon is kept."""
        return self.root / f"{name}.pid"

    def log(self, name: str) -> Path:
        """Where a daemon writes its log."""
        return self.root / f"{name}.log"
