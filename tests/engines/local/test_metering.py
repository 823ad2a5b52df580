"""Energy: counters that wrap, shares, and estimates."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.engines.base import Run
from isthmus.engines.metering import Power, RaplMeter, estimate, machine_cpu_seconds, share_of_energy
from isthmus.testing.engines import new_run_id, wait_ended

from .conftest import ACCOUNT, MakeEngine


def zone(root: Path, name: str, label: str, count: int, span: int = 999_999) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(label + "\n")
    (folder / "energy_uj").write_text(f"{count}\n")
    (folder / "max_energy_range_uj").write_text(f"{span}\n")
    return folder / "energy_uj"


def test_rapl_adds_up_and_wraps(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 900_000)
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 0)
    core = zone(tmp_path, "intel-rapl:0:0", "core", 0)
    psys = zone(tmp_path, "intel-rapl:1", "psys", 0)
    meter = RaplMeter(tmp_path)
    assert meter.present
    assert meter.joules == 0
    package.write_text("950000")
    memory.write_text("10000")
    core.write_text("40000")
    psys.write_text("99000")
    meter.sample()
    assert meter.joules == pytest.approx(0.06)
    package.write_text("20000")
    meter.sample()
    assert meter.joules == pytest.approx(0.06 + 0.07)
    package.unlink()
    meter.sample()
    assert not meter.present


def test_no_meter(tmp_path: Path) -> None:
    assert not RaplMeter(tmp_path / "missing").present
    (tmp_path / "intel-rapl:0").mkdir()
    assert not RaplMeter(tmp_path).present


def test_shares() -> None:
    assert share_of_energy(90, 1, 3) == pytest.approx(30)
    assert share_of_energy(90, 4, 3) == 90
    assert share_of_energy(90, 1, 0) == 0


def test_estimates() -> None:
    power = {"cpu": Power(1, 11), "board": Power(2, 5)}
    # Two cpus for ten seconds, half of it busy: 10 s busy at 11 W, 10 s idle at 1 W.
    assert estimate(power, {}, 2, 10, 10) == pytest.approx(120)
    assert estimate(power, {"board": ["0", "1"]}, 2, 10, 10) == pytest.approx(120 + 100)
    assert estimate({}, {"board": ["0"]}, 1, 10, 1) is None


def test_machine_time(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 100 100 9999 9999 50 50 0 0 0\ncpu0 …\n")
    assert machine_cpu_seconds(tmp_path) == pytest.approx(4.0)
    assert machine_cpu_seconds() > 0


@pytest.mark.anyio
async def test_runs_are_given_their_share_of_rapl(make_engine: MakeEngine, tmp_path: Path) -> None:
    counter = zone(tmp_path / "powercap", "intel-rapl:0", "package-0", 0, span=10**9)
    engine = await make_engine(powercap=tmp_path / "powercap")
    assert (await engine.probe([])).features["energy"] == "rapl"
    run = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", "trap 'exit 0' TERM; while :; do :; done"), account=ACCOUNT)
    await engine.submit(run)
    counter.write_text("50000000")
    await engine.cancel(run.id, grace=60)
    usage = (await wait_ended(engine, run.id)).usage
    assert usage is not None
    assert usage.energy_source == "rapl"
    assert usage.energy_joules is not None
    assert 0 <= usage.energy_joules <= 50
