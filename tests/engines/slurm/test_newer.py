"""The engine contract on a Slurm three years younger than this machine's, by slurmrestd, whose form changes most."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.layout import LabSettings
from isthmus.testing.slurm import running_slurm

from .test_contract import TestRest as OnThisMachine
from .test_contract import another, reader, reopen, traces

__all__ = ["another", "reader", "reopen", "traces"]
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    """Of Debian 13, which is stable: 24.11."""
    with running_slurm(3, LabSettings(release="trixie")) as made:
        assert made.version() == (24, 11)
        yield made


class TestNewerRest(OnThisMachine):
    """slurmrestd of 24.11."""


del OnThisMachine  # it is tried in its own module
