"""Meters of device classes: the shell lines against files and programs that stand for the hardware, and on the lab."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.metering import Power
from isthmus.engines.meters import Metering
from isthmus.engines.slurm.batch import sampler
from isthmus.engines.slurm.batch.sampler import Guess, guess
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.facts import SlurmJob
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.observing import observations
from isthmus.engines.slurm.observing.observations import Evidence, Word
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.resources.deviceclasses import DeviceClass, Meter, Use
from isthmus.telemetry.journals import Sample, parse
from isthmus.testing.engines import wait_ended, wait_log_has
from isthmus.testing.servers import eventually

from .test_exactly_once import run_of
from .test_sampling import ticks

DONE = SlurmJob(7, ("COMPLETED",), started_at=datetime(2026, 1, 1, tzinfo=UTC))
RAPL = Meter(source="RAPL")


class Measurement:
    """The sampler beside a program, until it is told to stop."""

    def __init__(self, folder: Path, wanted: Metering, guessed: Guess | None = None, path: str = "") -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "sample").write_text(sampler.script(wanted, guessed, str(folder.parent / "sys")))
        self.program = subprocess.Popen(["sleep", "1000"])
        env = {"PATH": f"{path}:{os.environ['PATH']}", "SLURM_CPUS_ON_NODE": "100000"}
        words = ["/bin/sh", str(folder / "sample"), str(folder), str(self.program.pid)]
        with (folder / "record").open("w") as record:
            self.process = subprocess.Popen(words, stderr=record, env=env)

    def samples(self) -> list[Sample]:
        try:
            return parse((self.folder / "samples").read_bytes())[0]
        except FileNotFoundError:
            return []

    def record(self) -> list[str]:
        """What the sampler itself had to say."""
        return (self.folder / "record").read_text().splitlines()

    def stop(self) -> dict[str, float]:
        """Joules by source."""
        self.process.terminate()
        assert self.process.wait(60) == 0
        said = [line.removeprefix("meter=").split() for line in (self.folder / ".meters").read_text().splitlines()]
        return {source: int(micro) / 1e6 for source, micro in said}


@contextmanager
def measuring(folder: Path, *meters: Meter, use: Use | None = None, **more: Any) -> Iterator[Measurement]:
    """A measurement that has looked at least once."""
    wanted = Metering(tuple(("board", meter) for meter in meters), (use,) if use else ())
    measurement = Measurement(folder, wanted, **more)
    try:
        eventually(measurement.samples)
        yield measurement
    finally:
        for process in (measurement.process, measurement.program):
            process.kill()
            process.wait()


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
        assert measurement.stop() == {"RAPL": pytest.approx(2 + 4, abs=0.001)}


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
        joules = measurement.stop()["Hwmon"]
    assert 0 < joules <= 10 * (time.monotonic() - began), "10 W, and never more than that"


def test_power_sensors_are_added_up(tmp_path: Path) -> None:
    chip = tmp_path / "sys" / "class" / "hwmon" / "hwmon0"
    write(chip / "name", "pmbus")
    write(chip / "power1_input", 3_000_000)
    write(chip / "power2_input", 4_000_000)
    began = time.monotonic()
    with measuring(tmp_path / "run", Meter(source="Hwmon")) as measurement:
        joules = measurement.stop()["Hwmon"]
    assert 0 < joules <= 7 * (time.monotonic() - began)


def test_nvidia_smi_is_asked_once_for_power_and_use_of_the_jobs_gpus(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    write(program, f'#!/bin/sh\necho "$@" >{tmp_path}/asked\necho "100.5, 80"\necho "50, 20"')
    program.chmod(0o755)
    began = time.monotonic()
    nvml = Use(source="NVML")
    with measuring(tmp_path / "run", Meter(source="NVML"), use=nvml, path=str(program.parent)) as measurement:
        joules = measurement.stop()["NVML"]
    assert 0 < joules <= 150.5 * (time.monotonic() - began)
    assert measurement.samples()[-1].device_use == 0.5
    assert "--query-gpu=power.draw,utilization.gpu" in (tmp_path / "asked").read_text()


def test_a_command_may_count(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("100.5 J\n")
    with measuring(tmp_path / "run", Meter(source="Command", command=["cat", str(counter)], unit="Joules")) as found:
        counter.write_text("1.1225e2 J\n")
        eventually(lambda: found.samples()[-1].joules == 11.75)
        assert not found.samples()[-1].estimated
        counter.write_text("0112.5 J\n")
        assert found.stop() == {"Command": 12.0}, "it looks once more at the end"
    assert found.record() == []


def test_a_jetsons_gpu_tells_its_load_in_a_file(tmp_path: Path) -> None:
    for number, load in ((0, 750), (1, 250)):
        write(tmp_path / f"gpu.{number}" / "load", load)
    use = Use(source="File", path=f"{tmp_path}/gpu.*/load", full=1000)
    with measuring(tmp_path / "run", use=use) as measurement:
        assert measurement.samples()[-1].device_use == 0.5
        assert measurement.samples()[-1].joules is None


def test_without_a_meter_that_can_be_read_power_is_estimated(tmp_path: Path) -> None:
    guessed = guess({"cpu": Power(1, 11), "board": Power(1, 4)}, {"board": 2}, 1500)
    assert guessed == Guess(9500, 10_000, 1500)
    with measuring(tmp_path / "run", RAPL, guessed=guessed) as measurement:
        eventually(lambda: len(measurement.samples()) > 1)
        assert measurement.stop() == {}
    first, second = measurement.samples()[:2]
    assert first.estimated
    watts = ((second.joules or 0) - (first.joules or 0)) / (second.at - first.at)
    assert watts == pytest.approx(9.5, rel=0.05)


UNREADABLE = [
    RAPL,
    Meter(source="Hwmon"),
    Meter(source="Command", command=["false"]),
    Meter(source="Command", command=["echo", "none"]),
    Meter(source="Command", command=["echo", "-5"]),
    Meter(source="NVML"),
]


@pytest.mark.parametrize("meter", UNREADABLE)
def test_a_meter_that_cannot_be_read_is_left_out_and_said_once(meter: Meter, tmp_path: Path) -> None:
    use = Use(source="File", path=f"{tmp_path}/none")
    with measuring(tmp_path / "run", meter, use=use) as measurement:
        eventually(lambda: len(measurement.samples()) > 1)
        assert measurement.stop() == {}
    assert all(sample.joules is None and sample.device_use is None for sample in measurement.samples())
    power, busy = measurement.record()
    assert power.startswith(f"{meter.source} meter of board: ")
    assert busy == f"File for the use of devices: {tmp_path}/none cannot be read here; its use is left out"


def test_a_command_that_costs_much_is_asked_less_often(tmp_path: Path) -> None:
    """Cpu time is counted: however busy this machine is, looks are so far apart that they cost a hundredth or so."""
    program = tmp_path / "costly"
    write(program, "#!/bin/sh\ni=0\nwhile [ $i -lt 30000 ]; do i=$((i + 1)); done\necho x >>$0.count\necho 5")
    program.chmod(0o755)
    with measuring(tmp_path / "run", Meter(source="Command", command=[str(program)])) as measurement:
        eventually(lambda: len(measurement.samples()) > 1, timeout=120)
        samples = measurement.samples()
        used = ticks(Path(f"/proc/{measurement.process.pid}")) / os.sysconf("SC_CLK_TCK")
    between = samples[-1].at - samples[0].at
    looks = len((tmp_path / "costly.count").read_text().splitlines())
    assert used / looks < 0.02 * between, f"{used:.2f} s in {looks} looks, {between:.1f} s apart"


def test_no_meter_keeps_a_job_from_ending(tmp_path: Path) -> None:
    hangs = Meter(source="Command", command=["sh", "-c", f"touch {tmp_path}/asked; sleep 1000"])
    measurement = Measurement(tmp_path / "run", Metering((("board", hangs),)))
    try:
        eventually((tmp_path / "asked").exists)
        assert measurement.stop() == {}
    finally:
        measurement.program.kill()
        measurement.program.wait()


def test_a_meter_is_whole_or_refused() -> None:
    with pytest.raises(ValueError, match="needs command"):
        Meter(source="Command")
    with pytest.raises(ValueError, match="needs command"):
        Meter(source="RAPL", command=["x"])
    with pytest.raises(ValueError, match="line breaks"):
        Meter(source="Hwmon", chip="a\nb")
    with pytest.raises(ValueError, match="File needs path"):
        Use(source="File")
    with pytest.raises(ValueError, match="pattern"):
        Use(source="File", path="/sys/$(reboot)")


def test_what_counts_a_whole_node_is_shared_and_what_counts_a_device_is_not() -> None:
    word = Word(7, 0, 0.0, 10.0, meters=(("RAPL", 100.0), ("NVML", 40.0)))
    found = observations.over(Evidence(RunRecord("r.0"), DONE, None, word, True, energy_share=0.25))
    assert found.usage is not None
    assert (found.usage.energy_joules, found.usage.energy_source) == (65.0, "nvml+rapl")


@pytest.mark.real
@pytest.mark.anyio
async def test_power_and_use_of_a_board_live_and_at_the_end(lab: SlurmLab, engine: SlurmEngine, tmp_path: Path) -> None:
    stem = lab.place.shared / tmp_path.name
    counter, load = stem.with_suffix(".joules"), stem.with_suffix(".load")
    for file, text in ((counter, "1000"), (load, "250")):
        write(file, text)
        file.chmod(0o644)
    board = {
        "power": {"busyWatts": 2},
        "slurm": {"gres": "board:akida"},
        "meter": {"source": "Command", "command": ["cat", str(counter)], "unit": "Joules"},
        "use": {"source": "Command", "command": ["cat", str(load)], "full": 1000},
    }
    await engine.probe([DeviceClass.model_validate({"metadata": {"name": "akida"}, "spec": board})])
    run = run_of("echo begun; until test -e go; do sleep 0.1; done", devices={"akida": 1})
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")

    async def sampled(joules: float) -> Sample:
        async with asyncio.timeout(90):
            while True:
                samples, _ = parse(await engine.read_samples(run.id, 0, 65536))
                if samples and samples[-1].joules == joules:
                    return samples[-1]
                await asyncio.sleep(0.1)

    assert (await sampled(0)).device_use == 0.25
    write(counter, "1040.5")
    write(load, "1000")
    seen = await sampled(40.5)
    assert (seen.device_use, seen.estimated) == (1.0, False)
    write(counter, "1042")
    folder = Path(engine._files.folder(run.id))
    (folder / "work" / "go").touch()
    end = await wait_ended(engine, run.id)
    assert end.usage is not None
    assert (end.usage.energy_joules, end.usage.energy_source) == (42.0, "command")
    assert (folder / "sampling.log").read_text() == ""
