"""What is asked of the cluster's file system, whichever way it is reached.

```
<folder>/active/<run id>    the record of a run that is not over, or whose books are still awaited
<folder>/over/<run id>      the record of one that is
<folder>/runs/<run id>/     the run itself; belongs to the person:
    launch, script          what starts it (see `scripts`), and the script that it was given
    work/, tmp/             where it runs
    stdout, stderr          its output
    slurm.out               what Slurm itself has to say
    begun, ended, units     what the batch script writes
    samples                 the journal of what it uses
```

Records belong to the site's own account. A record is made whole or not at all, and only one of two who make it at the
same time succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from isthmus.engines.base import FileSink, FileSource


class LogFile(NamedTuple):
    """One log."""

    run_id: str
    user: str
    name: str


WORKED_WITH = ("work", "tmp", "launch", "script")
"""What nobody needs when the outputs have been collected."""


class LaunchFile(NamedTuple):
    """A text for the run's folder, and its mode."""

    text: str
    mode: int = 0o400


class RunFiles(Protocol):
    """The file system. Every call raises SiteUnavailable when it cannot be reached."""

    async def open(self) -> None:
        """Connect, and make the folders."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    def moved(self, run_id: str) -> tuple[int, int] | None:
        """Bytes of a run's files that were moved, and that there are; None if none are being moved."""
        ...

    def folder(self, run_id: str) -> str:
        """Where a run is, as the nodes see it."""
        ...

    async def list_records(self) -> tuple[set[str], set[str]]:
        """The runs that are not over, and those that are."""
        ...

    async def read_record(self, run_id: str) -> bytes | None:
        """The record of a run."""
        ...

    async def create_record(self, run_id: str, content: bytes, *, over: bool = False) -> bool:
        """Make a record; False if there is one."""
        ...

    async def write_record(self, run_id: str, content: bytes) -> None:
        """Change the record of a run that is not over."""
        ...

    async def finish_record(self, run_id: str, content: bytes) -> None:
        """The run is over."""
        ...

    async def drop_record(self, run_id: str) -> None:
        """Forget the run."""
        ...

    async def begin(
        self, run_id: str, user: str, launch: Mapping[str, LaunchFile], source: FileSource | None, record: bytes
    ) -> bool:
        """Make the run's folder appear, complete (one that is there is left as it is), and then its record.

        False if there is a record.
        """
        ...

    async def bar(self, run_id: str, user: str) -> None:
        """Leave word that the run must not begin."""
        ...

    async def read(self, file: LogFile, offset: int = 0, size: int = 65536) -> bytes | None:
        """Part of a file of the run; None if there is no such file."""
        ...

    async def sizes(self, files: Sequence[LogFile]) -> list[int]:
        """How long files are; 0 for one that is not there."""
        ...

    async def collect(self, run_id: str, user: str, patterns: Sequence[str], sink: FileSink, limit: int) -> list[str]:
        """Bring back what matches; a sentence for each match that was not kept. Raises FileNotFoundError."""
        ...

    async def tidy(self, run_id: str, user: str) -> None:
        """Remove what the program worked with; log and words stay."""
        ...

    async def remove(self, run_id: str, user: str) -> None:
        """Remove the run's folder."""
        ...
