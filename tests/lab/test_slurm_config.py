from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.errors import Misconfigured
from isthmus.lab.slurm import config
from isthmus.lab.slurm.layout import LabSettings, NodeSpec, Place

PLACE = Place(Path("/x/lab"), 7)


def test_two_labs_share_neither_ports_nor_addresses_nor_names() -> None:
    other = Place(Path("/x/other"), 8)
    assert not {PLACE.port(n) for n in range(8)} & {other.port(n) for n in range(8)}
    assert PLACE.address(2) != other.address(2)
    assert PLACE.node_name(1) != other.node_name(1)
    assert PLACE.bridge != other.bridge
    assert len(PLACE.link(254)) < 16, "the kernel's limit for names of interfaces"


def test_settings_replace_ours() -> None:
    text = config.slurm_conf(PLACE, LabSettings(options={"MinJobAge": "2", "KillOnBadExit": "1"}), "here")
    assert text.count("MinJobAge=") == 1
    assert "MinJobAge=2\n" in text
    assert "KillOnBadExit=1\n" in text


def test_without_limits_nothing_speaks_of_cgroups() -> None:
    text = config.slurm_conf(PLACE, LabSettings(limits=False), "here")
    assert "cgroup" not in text
    assert "accounting_storage/none" in text


def test_accounting_reaches_munge_by_the_pass() -> None:
    text = config.slurm_conf(PLACE, LabSettings(accounting=True), "here")
    assert f"AccountingStoragePass={PLACE.munge}\n" in text


def test_generic_resources_are_read() -> None:
    spec = NodeSpec("n1", gres=("board:akida:2", "gpu:1", "lamp"))
    assert config.gres_units(spec) == [("board", "akida", 2), ("gpu", "", 1), ("lamp", "", 1)]
    assert spec.conf == "CPUs=2 RealMemory=1000 Gres=board:akida:2,gpu:1,lamp"


def test_a_folder_too_long_for_sockets_is_refused() -> None:
    with pytest.raises(Misconfigured, match="too long"):
        Place.of(Path("/" + "x" * 90))
