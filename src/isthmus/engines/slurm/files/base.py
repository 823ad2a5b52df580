"""What is asked of the cluster's file system, whichever way it is reached.

```
<folder>/active/<run id>    the record of a run that is not over, or whose accounting is still awaited
<folder>/over/<run id>      the record of one that is
<folder>/runs/<run id>/     the run itself; belongs to the person:
    launch, script          what starts it (see `scripts`), and the script that it was given
    work/, tmp/             where it runs
    stdout, stderr          its output
    slurm.out               what Slurm itself has to say
    begun, ended, units     what the batch script writes
    samples                 the journal of what it uses
<folder>/news/              where jobs leave word that they began or ended (see `mailbox`); anybody may
```

Records belong to the site's own account. A record is made whole or not at all, and only one of two who make it at the
same time succeeds: every record begins in `active`, where a name exists once. A change is a line more at its end. It
moves to `over` by being renamed, so it is in one place at any moment, nobody moves it twice, and one that was forgotten
does not come back. Whoever writes to it while it moves has lost nothing: of several lines `records.load` makes one.

Whoever opens the folder takes it over: a record begins as a file in `staging/<owner>.<token>/`, which each makes for
itself, and which the next one to open the folder removes. So a control plane that was stopped in the midst of a
submission, and wakes up when another one has opened the site, can make no record, and without one nothing is sent.

`launch` is the first file of a run's folder to be removed: without it no program starts, so a job that Slurm begins
while `begun` is being removed has nothing to run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from isthmus.engines.base import FilePart, FileSink, FileSource, FolderListing


class LogFile(NamedTuple):
    """One log."""

    run_id: str
    user: str
    name: str


LOGS = frozenset({"stdout", "stderr"})
"""The files of a run that may be long, and are read while they grow."""
MOST_NEWS = 5000
"""Names that are looked at in one go: whoever fills the folder costs us no more than that."""
WORKED_WITH = ("launch", "script", "work", "tmp")
"""What nobody needs when the outputs have been collected, in the order in which it is removed."""


class LaunchFile(NamedTuple):
    """A text for the run's folder, and its mode."""

    text: str
    mode: int = 0o400


class RunFiles(Protocol):
    """The file system. Every call raises SiteUnavailable when it cannot be reached."""

    async def open(self) -> None:
        """Connect, make the folders, and take them over: nobody who opened them before can begin a run any more."""
        ...

    async def ours(self) -> bool:
        """Whether nobody has taken them over since."""
        ...

    async def open_to_read(self) -> None:
        """Connect, and change nothing: only records and files of runs can be read then."""
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
        """The runs that are not over, and those that are; none is both."""
        ...

    async def read_record(self, run_id: str) -> bytes | None:
        """The record of a run; of two, the one that says that it is over."""
        ...

    async def read_records(self, run_ids: Collection[str]) -> dict[str, bytes]:
        """The records of many runs that are not over; those that have one."""
        ...

    async def news(self) -> set[str]:
        """The names of files in the folder `news`, each reported once: they are removed. Some thousand at most."""
        ...

    async def create_record(self, run_id: str, content: bytes) -> bool:
        """Make a record; False if there is one."""
        ...

    async def write_record(self, run_id: str, content: bytes) -> bool:
        """Change the record of a run that is not over; False if it is over: then nothing is written."""
        ...

    async def finish_record(self, run_id: str, content: bytes) -> bool:
        """The run is over; False if that was written before: then nothing is written."""
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

    async def list_work(self, run_id: str, user: str, most: int) -> FolderListing:
        """What is in the folder where it runs; raises NotFound."""
        ...

    async def read_work(self, run_id: str, user: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a plain file there; raises NotFound."""
        ...

    async def collect(self, run_id: str, user: str, patterns: Sequence[str], sink: FileSink, limit: int) -> list[str]:
        """Bring back what matches; a sentence for each match that was not kept. Raises FileNotFoundError."""
        ...

    async def tidy(self, run_id: str, user: str) -> None:
        """Remove what the program worked with; log and words stay."""
        ...

    async def remove(self, run_id: str, user: str) -> None:
        """Remove the run's folder, and first of all what starts it."""
        ...
