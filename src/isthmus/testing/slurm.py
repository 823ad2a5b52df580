"""A real Slurm for tests, gone without a trace afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings


@contextmanager
def running_slurm(nodes: int, settings: LabSettings | None = None) -> Iterator[SlurmLab]:
    """A lab of its own in a folder whose path is short enough for sockets, and open to the lab's accounts."""
    folder = Path(tempfile.mkdtemp(prefix="isl-"))
    folder.chmod(0o711)
    made = SlurmLab(folder / "lab")
    try:
        made.up(nodes, settings or LabSettings())
        yield made
    finally:
        made.down(erase=True)
        shutil.rmtree(folder)
