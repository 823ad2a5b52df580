"""Signing in to a registry: whose credentials, and what is sent. The password is in no representation, so in no log."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """An account of a registry."""

    owner: str
    """What the credentials are known by. Images that were fetched with them are for nobody else."""
    registry: str
    """The only registry that they are for, as references name it."""
    user: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The header of HTTP's basic authentication."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
