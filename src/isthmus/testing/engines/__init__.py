"""The engine contract as suites, one for each part: a driver passes those of the parts that it has.

A driver's tests make a class of the suites, with `RunContract` and `TaskContract` always among them, and give the
fixtures `engine` (open), `reopen` (closes the present engine object and opens another on the same place, as a restarted
control plane would) and `another` (opens one while the first is still there); a suite that needs more says so. `traits`
says what may differ between engines. Jobs use nothing but a POSIX shell and the usual small programs.
"""

from isthmus.engines.base import (
    ExecEngine,
    FolderReader,
    HoldingEngine,
    MeasuringEngine,
    PortEngine,
    ReadingEngine,
    StagingEngine,
)

from .holding import HoldContract
from .imaging import ImageContract
from .looking import BrowseContract
from .measuring import MeasureContract
from .packaging import EnvironmentContract
from .reaching import ConnectContract, ExecContract
from .reading import OpenReader, ReadContract, Traces
from .running import RunContract
from .staging import StageContract
from .tasks import TaskContract
from .working import (
    EngineSuite,
    EngineTraits,
    FolderSource,
    MemorySink,
    Reopen,
    SuiteEngine,
    new_run_id,
    until,
    wait_ended,
    wait_log_has,
    whole_log,
)

PARTS: dict[type, type[EngineSuite]] = {
    ExecEngine: ExecContract,
    FolderReader: BrowseContract,
    HoldingEngine: HoldContract,
    MeasuringEngine: MeasureContract,
    PortEngine: ConnectContract,
    ReadingEngine: ReadContract,
    StagingEngine: StageContract,
}
"""The parts that an engine may have, and the suite of each."""

__all__ = [
    "PARTS",
    "BrowseContract",
    "ConnectContract",
    "EngineSuite",
    "EngineTraits",
    "EnvironmentContract",
    "ExecContract",
    "FolderSource",
    "HoldContract",
    "ImageContract",
    "MeasureContract",
    "MemorySink",
    "OpenReader",
    "ReadContract",
    "Reopen",
    "RunContract",
    "StageContract",
    "SuiteEngine",
    "TaskContract",
    "Traces",
    "new_run_id",
    "until",
    "wait_ended",
    "wait_log_has",
    "whole_log",
]
