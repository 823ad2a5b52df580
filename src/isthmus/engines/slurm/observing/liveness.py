"""Whether a run that Slurm does not vouch for may still be alive: by what it writes.

A slurmctld that was killed starts from an older state. It may not know a job that runs on its node, or call it over
while it does. That is no end: until Slurm tells the node to end what it does not know, or for good where the node is
cut off, the program goes on, and it will leave word. So such a run counts as lost only when nothing of it was heard for
a while: neither its journal, to which the sampler beside the program adds a line every second at first and every minute
at the latest, nor its output has grown.
"""

from __future__ import annotations

from dataclasses import dataclass

from isthmus._kit.numbers import decimal
from isthmus.engines.slurm.files.base import LogFile, RunFiles

QUIET_SECONDS = 120.0
"""How long nothing may have been written of a run that Slurm does not know, before it counts as lost."""
RESTS = 3
"""The same, in pauses of its own journal: one line may be late."""
LONGEST_REST = 60.0
_TAIL = 512


@dataclass(slots=True)
class Pulse:
    """What was last heard of a run."""

    sizes: tuple[int, ...] | None = None
    """Of its journal and its output."""
    since: float = 0.0
    """Since when nothing was added to them, on the monotonic clock."""
    rest: float = 0.0
    """Seconds between the last two lines of the journal."""

    def quiet(self, now: float, least: float) -> bool:
        """Whether it has been silent for longer than one that lives would be."""
        return self.sizes is not None and now - self.since >= max(least, RESTS * self.rest)


async def listen(pulse: Pulse, files: RunFiles, run_id: str, user: str, now: float) -> bool:
    """Look at what a run has written; whether its journal has grown since the last look."""
    journal = LogFile(run_id, user, "samples")
    sizes = tuple(await files.sizes([journal, LogFile(run_id, user, "stdout"), LogFile(run_id, user, "stderr")]))
    before, pulse.sizes = pulse.sizes, sizes
    if before == sizes:
        return False
    pulse.since = now
    pulse.rest = rest_of(await files.read(journal, max(0, sizes[0] - _TAIL), _TAIL) or b"")
    return before is not None and sizes[0] > before[0]


def rest_of(tail: bytes) -> float:
    """Seconds between the last two lines of a journal. The job can write there: only what can be is believed."""
    stamps = [decimal(line.split(b" ", 1)[0].decode(errors="replace")) for line in tail.split(b"\n")[1:-1]]
    if len(stamps) < 2 or stamps[-1] is None or stamps[-2] is None:
        return 0.0
    return min(LONGEST_REST, max(0.0, stamps[-1] - stamps[-2]))
