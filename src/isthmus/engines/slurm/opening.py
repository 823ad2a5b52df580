"""From settings to an engine: which way in, and which way to the files."""

from __future__ import annotations

from isthmus.engines.slurm.containers.image_stores import ImageStore, RemoteStore, SharedStore
from isthmus.engines.slurm.files.base import RunFiles
from isthmus.engines.slurm.files.remote import RemoteFiles
from isthmus.engines.slurm.files.shared import SharedFiles
from isthmus.engines.slurm.transports.base import Budget, SlurmTransport
from isthmus.engines.slurm.transports.command_line import CommandLine, LocalRunner
from isthmus.engines.slurm.transports.rest import Rest
from isthmus.engines.slurm.transports.routing import BestWays
from isthmus.engines.slurm.transports.ssh import SshConnections
from isthmus.errors import Misconfigured

from .driver import SlurmEngine
from .settings import SlurmSettings


def make_engine(settings: SlurmSettings) -> SlurmEngine:
    """An engine, not yet opened; raises Misconfigured."""
    budget = Budget(settings.calls_per_second, settings.burst)
    ssh = SshConnections(settings.ssh, settings.command_seconds) if settings.ssh else None
    folder, owner = settings.folder, settings.owner
    files: RunFiles = RemoteFiles(folder, ssh, owner) if ssh else SharedFiles(folder, owner)
    images: ImageStore = RemoteStore(folder, ssh) if ssh else SharedStore(folder)
    return SlurmEngine(settings, _transport(settings, ssh, budget), files, budget, images)


def _transport(settings: SlurmSettings, ssh: SshConnections | None, budget: Budget) -> SlurmTransport:
    if settings.transport == "REST" and settings.rest is None:
        raise Misconfigured("Transport REST needs the section rest.")
    if settings.transport == "SSH" and ssh is None:
        raise Misconfigured("Transport SSH needs the section ssh.")
    ways: dict[str, SlurmTransport] = {}
    if settings.rest is not None and settings.transport in ("Auto", "REST"):
        ways["REST"] = Rest(settings.rest, settings.command_seconds, budget)
    if ssh is not None and settings.transport in ("Auto", "SSH"):
        ways["SSH"] = CommandLine(settings, ssh, budget)
    elif settings.transport in ("Auto", "Command"):
        ways["Command"] = CommandLine(settings, LocalRunner(settings.command_seconds), budget)
    return next(iter(ways.values())) if len(ways) == 1 else BestWays(ways)
