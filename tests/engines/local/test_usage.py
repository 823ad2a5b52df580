"""What a run uses: from its processes, from boards that tell, and as lines of a journal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from isthmus.engines.local import cgroups
from isthmus.engines.local.meter_process import MeterProcess
from isthmus.engines.local.usage import Boards, UsageMeter, processes_usage
from isthmus.engines.metering import Power, RaplMeter
from isthmus.engines.sampling import MAX_BYTES, append
from isthmus.testing.servers import eventually


def test_processes_are_added_up_with_their_children() -> None:
    inner = "x = bytearray(40_000_000); print(flush=True)\nwhile True: pass"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    words = [sys.executable, "-c", outer]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            found = eventually(lambda: (used := processes_usage(os.getpid()))[0] > 0.2 and used)
            assert found[1] > 40_000_000
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_boards_tell_how_busy_they_are_and_what_they_draw(tmp_path: Path) -> None:
    device = tmp_path / "class/drm/card0/device"
    (device / "hwmon/hwmon1").mkdir(parents=True)
    (device / "gpu_busy_percent").write_text("25\n")
    (device / "hwmon/hwmon1/power1_average").write_text("30000000\n")
    (tmp_path / "devices/platform/17000000.gpu").mkdir(parents=True)
    (tmp_path / "devices/platform/17000000.gpu/load").write_text("750\n")
    boards = Boards(tmp_path)
    assert (boards.use(), boards.watts()) == (0.5, 30.0)
    assert (Boards(tmp_path / "none").use(), Boards(tmp_path / "none").watts()) == (None, None)


def test_energy_is_measured_where_there_is_a_meter(tmp_path: Path) -> None:
    zone = tmp_path / "powercap/intel-rapl:0"
    zone.mkdir(parents=True)
    for name, text in (("name", "package-0"), ("max_energy_range_uj", "1000000000"), ("energy_uj", "0")):
        (zone / name).write_text(text)
    rapl, log = RaplMeter(tmp_path / "powercap"), tmp_path / "log"
    log.write_text("12345")
    meter = UsageMeter(cgroups.Group(), rapl, power={}, devices={}, cpus=1.0)
    first = meter.read(1.0, log)
    assert (first.estimated, first.output_bytes) == (False, 5)
    (zone / "energy_uj").write_text("50000000")
    second = meter.read(2.0, tmp_path / "none")
    assert second.joules is not None
    assert 0 <= (first.joules or 0) <= second.joules <= 50
    assert second.output_bytes is None
    estimated = UsageMeter(
        cgroups.Group(), RaplMeter(tmp_path / "none"), power={"x": Power(1, 5)}, devices={"x": ["0", "1"]}, cpus=1
    ).read(3.0, log)
    assert (estimated.joules, estimated.estimated) == (30.0, True)


def test_a_meter_that_looks_when_it_likes_gives_a_steady_power(tmp_path: Path) -> None:
    script = "echo 1000 400 0 -; echo nonsense; echo 2000 400 5000000 -; read -r line"
    plan = {"script": script, "sources": [("board", "Command"), ("cpu", "RAPL")], "env": {}, "identity": None}
    process = MeterProcess(plan, tmp_path / "record")
    eventually(lambda: process.look() or process.seen.at == 2)
    assert (process.reported, process.seen.use) == (True, 0.4)
    assert process.joules() == {"board": ("Command", 5.0)}
    assert process.joules(2.5) == {"board": ("Command", 7.5)}
    assert process.joules(99.0) == {"board": ("Command", 15.0)}, "not for ever"
    assert process.joules(1.0) == {"board": ("Command", 5.0)}
    process.finish()
    os.waitpid(process.pid, 0)


def test_a_journal_has_an_end_and_a_full_disk_costs_no_run(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    append(path, b"a\n")
    append(path, b"b\n")
    assert path.read_bytes() == b"a\nb\n"
    with path.open("r+b") as file:
        file.truncate(MAX_BYTES)
    append(path, b"c\n")
    assert path.stat().st_size == MAX_BYTES
    append(tmp_path / "no/such/folder", b"x\n")
    (tmp_path / "link").symlink_to(path)
    append(tmp_path / "link", b"x\n")
    assert path.stat().st_size == MAX_BYTES, "links are not followed"
