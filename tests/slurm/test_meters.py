"""Meters of device classes: the shell lines against files and programs that stand for the hardware, and on the lab."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from isthmus.engines.slurm import meters, observing
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import SlurmJob
from isthmus.engines.slurm.observing import Evidence, Word
from isthmus.engines.slurm.records import Record
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.resources.deviceclasses import DeviceClass, Meter
from isthmus.testing.engines import wait_ended, wait_log_has
from isthmus.testing.servers import eventually

from .test_exactly_once import run_of

DONE = SlurmJob(7, ("COMPLETED",), started_at=datetime(2026, 1, 1, tzinfo=UTC))
RAPL = Meter(source="RAPL")


class Measurement:
    """Meters that run in a shell of their own until they are told to stop."""

    def __init__(self, folder: Path, meter: Meter, path: str = "") -> None:
        folder.mkdir()
        self._folder, self._meter = folder, meter
        script = f"run={folder}\n{meters.begin([meter], str(folder.parent / 'sys'))}read -r line\n{meters.end([meter])}"
        script += f"{{\n:\n{meters.tell([meter])}}} >{folder}/word\n"
        env = {"PATH": f"{path}:{os.environ['PATH']}"}
        self._process = subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, env=env)

    def begun(self) -> bool:
        return (self._folder / ".meter0").exists()

    def stop(self) -> float | None:
        """Joules."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.close()
        assert self._process.wait(30) in (0, 1)
        said = (self._folder / "word").read_text().split()
        if not said:
            return None
        assert said[0] == f"meter={self._meter.source}"
        return int(said[1]) / 1e6


@contextmanager
def measuring(folder: Path, meter: Meter, path: str = "") -> Iterator[Measurement]:
    measurement = Measurement(folder, meter, path)
    try:
        eventually(measurement.begun)
        yield measurement
    finally:
        measurement._process.kill()
        measurement._process.wait()


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def zone(root: Path, number: int, name: str, micro: int, span: int = 1_000_000_000) -> Path:
    folder = root / "sys" / "class" / "powercap" / f"intel-rapl:{number}"
    write(folder / "name", name)
    write(folder / "energy_uj", micro)
    write(folder / "max_energy_range_uj", span)
    return folder / "energy_uj"


def test_rapl_adds_packages_and_memory_and_knows_that_counters_wrap(tmp_path: Path) -> None:
    package, memory = zone(tmp_path, 0, "package-0", 999_000_000), zone(tmp_path, 1, "dram", 5)
    psys = zone(tmp_path, 2, "psys", 0)
    with measuring(tmp_path / "run", RAPL) as measurement:
        package.write_text("1000000\n")  # over its end
        memory.write_text("4000005\n")
        psys.write_text("900000000\n")  # all of it again
        assert measurement.stop() == pytest.approx(2 + 4, abs=0.001)


def test_a_jetsons_sensors_are_voltage_times_current_of_one_channel(tmp_path: Path) -> None:
    chip = tmp_path / "sys" / "class" / "hwmon" / "hwmon3"
    for number, label, volts, amps in ((1, "VDD_IN", 5000, 2000), (2, "VDD_CPU", 5000, 1000)):
        write(chip / f"in{number}_label", label)
        write(chip / f"in{number}_input", volts)
        write(chip / f"curr{number}_input", amps)
    write(chip / "name", "ina3221")
    write(tmp_path / "sys" / "class" / "hwmon" / "hwmon0" / "name", "k10temp")
    began = time.monotonic()
    with measuring(tmp_path / "run", Meter(source="Hwmon", chip="ina3221", label="VDD_IN")) as measurement:
        eventually(lambda: (tmp_path / "run" / ".meter0").read_text() != "0\n")
        joules = measurement.stop()
    assert joules is not None
    assert 0 < joules <= 10 * (time.monotonic() - began), "10 W, and never more than that"


def test_power_sensors_are_added_up(tmp_path: Path) -> None:
    chip = tmp_path / "sys" / "class" / "hwmon" / "hwmon0"
    write(chip / "name", "pmbus")
    write(chip / "power1_input", 3_000_000)
    write(chip / "power2_input", 4_000_000)
    began = time.monotonic()
    with measuring(tmp_path / "run", Meter(source="Hwmon")) as measurement:
        eventually(lambda: (tmp_path / "run" / ".meter0").read_text() != "0\n")
        joules = measurement.stop()
    assert joules is not None
    assert 0 < joules <= 7 * (time.monotonic() - began)


def test_nvidia_smi_is_asked_for_the_jobs_gpus(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    write(program, f'#!/bin/sh\necho "$@" >{tmp_path}/asked\necho 100.5\necho 50')
    program.chmod(0o755)
    began = time.monotonic()
    with measuring(tmp_path / "run", Meter(source="NVML"), str(program.parent)) as measurement:
        eventually(lambda: (tmp_path / "run" / ".meter0").read_text() != "0\n")
        joules = measurement.stop()
    assert joules is not None
    assert 0 < joules <= 150.5 * (time.monotonic() - began)
    assert "--query-gpu=power.draw" in (tmp_path / "asked").read_text()


def test_a_command_may_count(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("100.5 J\n")
    with measuring(tmp_path / "run", Meter(source="Command", command=["cat", str(counter)], unit="Joules")) as found:
        counter.write_text("112.25 J\n")
        assert found.stop() == pytest.approx(11.75)


@pytest.mark.parametrize("meter", [RAPL, Meter(source="Hwmon"), Meter(source="Command", command=["false"])])
def test_a_meter_that_cannot_be_read_says_nothing(meter: Meter, tmp_path: Path) -> None:
    measurement = Measurement(tmp_path / "run", meter)
    assert measurement.stop() is None


def test_a_meter_is_whole_or_refused() -> None:
    with pytest.raises(ValueError, match="needs command"):
        Meter(source="Command")
    with pytest.raises(ValueError, match="needs command"):
        Meter(source="RAPL", command=["x"])
    with pytest.raises(ValueError, match="line breaks"):
        Meter(source="Hwmon", chip="a\nb")


def test_what_counts_a_whole_node_is_shared_and_what_counts_a_device_is_not() -> None:
    word = Word(7, 0, 0.0, 10.0, meters=(("RAPL", 100.0), ("NVML", 40.0)))
    found = observing.over(Evidence(Record("r.0"), DONE, None, word, True, energy_share=0.25))
    assert found.usage is not None
    assert (found.usage.energy_joules, found.usage.energy_source) == (65.0, "nvml+rapl")


@pytest.mark.real
@pytest.mark.anyio
async def test_a_boards_own_meter_on_the_cluster(lab: SlurmLab, engine: SlurmEngine, tmp_path: Path) -> None:
    counter = lab.place.shared / f"{tmp_path.name}-counter"
    counter.write_text("1000\n")
    counter.chmod(0o644)
    meter = {"source": "Command", "command": ["cat", str(counter)], "unit": "Joules"}
    board = DeviceClass.model_validate(
        {
            "metadata": {"name": "akida"},
            "spec": {"power": {"busyWatts": 2}, "slurm": {"gres": "board:akida"}, "meter": meter},
        }
    )
    await engine.probe([board])
    run = run_of("echo begun; until test -e go; do sleep 0.1; done", devices={"akida": 1})
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    folder = Path(engine._files.folder(run.id))
    eventually(lambda: (folder / ".meter0").exists())
    counter.write_text("1042\n")
    (folder / "work" / "go").touch()
    end = await wait_ended(engine, run.id)
    assert end.usage is not None
    assert (end.usage.energy_joules, end.usage.energy_source) == (42.0, "command")
