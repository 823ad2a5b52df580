"""From settings to an engine: which way in, and which way to the files."""

from __future__ import annotations

from isthmus.errors import Misconfigured

from .command_line import CommandLine, LocalRunner
from .controllers import Budget, Controller
from .driver import SlurmEngine
from .files import RunFiles
from .rest import Rest
from .settings import SlurmSettings
from .shared_files import SharedFiles


def make_engine(settings: SlurmSettings) -> SlurmEngine:
    """An engine, not yet opened; raises Misconfigured."""
    budget = Budget(settings.calls_per_second, settings.burst)
    files: RunFiles = SharedFiles(settings.folder)
    controller: Controller
    if settings.transport == "REST":
        if settings.rest is None:
            raise Misconfigured("Transport REST needs the section rest.")
        controller = Rest(settings.rest, settings.command_seconds, budget)
    else:
        controller = CommandLine(settings, LocalRunner(settings.command_seconds), budget)
    return SlurmEngine(settings, controller, files, budget)
