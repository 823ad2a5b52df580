"""From settings to an engine: which way in, and which way to the files."""

from __future__ import annotations

from isthmus.errors import Misconfigured

from .command_line import CommandLine, LocalRunner
from .controllers import Budget, Controller
from .driver import SlurmEngine
from .files import RunFiles
from .remote_files import RemoteFiles
from .rest import Rest
from .settings import SlurmSettings
from .shared_files import SharedFiles
from .ssh import SshConnections
from .ways import BestWays


def make_engine(settings: SlurmSettings) -> SlurmEngine:
    """An engine, not yet opened; raises Misconfigured."""
    budget = Budget(settings.calls_per_second, settings.burst)
    ssh = SshConnections(settings.ssh, settings.command_seconds) if settings.ssh else None
    files: RunFiles = RemoteFiles(settings.folder, ssh) if ssh else SharedFiles(settings.folder)
    return SlurmEngine(settings, _controller(settings, ssh, budget), files, budget)


def _controller(settings: SlurmSettings, ssh: SshConnections | None, budget: Budget) -> Controller:
    if settings.transport == "REST" and settings.rest is None:
        raise Misconfigured("Transport REST needs the section rest.")
    if settings.transport == "SSH" and ssh is None:
        raise Misconfigured("Transport SSH needs the section ssh.")
    ways: dict[str, Controller] = {}
    if settings.rest is not None and settings.transport in ("Auto", "REST"):
        ways["REST"] = Rest(settings.rest, settings.command_seconds, budget)
    if ssh is not None and settings.transport in ("Auto", "SSH"):
        ways["SSH"] = CommandLine(settings, ssh, budget)
    elif settings.transport in ("Auto", "Command"):
        ways["Command"] = CommandLine(settings, LocalRunner(settings.command_seconds), budget)
    return next(iter(ways.values())) if len(ways) == 1 else BestWays(ways)
