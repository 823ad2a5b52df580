"""Settings of the engine of agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How the control plane uses the agent of a site."""

    site: str
    """Name of the site."""
    folder: Path
    """Where files on their way from the agent are kept until they are whole."""
    joined: bool = True
    """Whether a machine has joined. Default true; false: it was invited only."""
    call_seconds: float = 30.0
    """Seconds in which the agent must answer. Default 30: a heartbeat notices a dead link before."""
    submit_seconds: float = 60.0
    """Seconds that a submission is waited for; fetching an image takes longer, and is asked for again. Default 60."""
    package_index: str = ""
    """Where environments of Python packages get them from. Default: where the installer looks by itself."""
    wheels: str = ""
    """A folder of the machine that has wheels, which jobs there see, for the same. Default none."""
    max_output_bytes: int = 50 * 2**30
    """Bytes brought back from one run, whatever the agent says. Default 50 GiB."""
