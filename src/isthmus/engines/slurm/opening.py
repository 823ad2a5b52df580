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


def make_engine(settings: SlurmSettings) -> SlurmEngine:
    """An engine, not yet opened; raises Misconfigured."""
    budget = Budget(settings.calls_per_second, settings.burst)
    ssh = SshConnections(settings.ssh, settings.command_seconds) if settings.ssh else None
    files: RunFiles = RemoteFiles(settings.folder, ssh) if ssh else SharedFiles(settings.folder)
    controller: Controller
    if settings.transport == "REST":
        if settings.rest is None:
            raise Misconfigured("Transport REST needs the section rest.")
        controller = Rest(settings.rest, settings.command_seconds, budget)
    elif settings.transport == "SSH":
        if ssh is None:
            raise Misconfigured("Transport SSH needs the section ssh.")
        controller = CommandLine(settings, ssh, budget)
    else:
        controller = CommandLine(settings, LocalRunner(settings.command_seconds), budget)
    return SlurmEngine(settings, controller, files, budget)
