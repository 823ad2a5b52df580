"""Labs for tests: in short folders that everybody may pass through, and gone without a trace afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.lab.slurm.cluster import SlurmLab


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="isl-"))
    path.chmod(0o711)
    yield path / "lab"
    SlurmLab(path / "lab").down(erase=True)
    shutil.rmtree(path)
