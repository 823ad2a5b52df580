from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.errors import Invalid, Misconfigured
from isthmus.lab.slurm import config, packages, releases
from isthmus.lab.slurm.layout import LabSettings, NodeSpec, SlurmLabPlace

PLACE = SlurmLabPlace(Path("/x/lab"), 7)


def test_two_labs_share_neither_ports_nor_addresses_nor_names() -> None:
    other = SlurmLabPlace(Path("/x/other"), 8)
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


def test_programs_of_another_release_come_first_and_bring_their_plugins() -> None:
    settings = LabSettings(accounting=True, release="trixie")
    assert PLACE.path.startswith("/x/lab/programs/bin:")
    line = "PluginDir=/x/lab/programs/lib/slurm-wlm\n"
    assert line in config.slurm_conf(PLACE, settings, "here")
    assert line in config.slurmdbd_conf(PLACE, settings)
    assert "PluginDir" not in config.slurm_conf(PLACE, LabSettings(), "here")


@pytest.mark.parametrize("name", ["", "Trixie", "../x", "trixie main", "-o"])
def test_what_is_no_release_is_not_looked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="not the name of a Debian release"):
        releases.fetch(name, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_slurmrestd_is_told_what_to_offer_in_the_words_of_its_version() -> None:
    assert packages.rest_plugins(packages.version("slurm-wlm 22.05.8\n"), True) == [
        "openapi/v0.0.38",
        "openapi/dbv0.0.38",
    ]
    assert packages.rest_plugins(packages.version("slurm-wlm 23.11.4\n"), True) == ["slurmctld", "slurmdbd"]
    assert packages.rest_plugins((26, 5), False) == ["slurmctld"]


def test_a_folder_too_long_for_sockets_is_refused() -> None:
    with pytest.raises(Misconfigured, match="too long"):
        SlurmLabPlace.of(Path("/" + "x" * 90))
