"""Units are found, handed out exclusively, announced, and free again after the end, crash or not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines.base import Run
from isthmus.engines.local.devices import DeviceKind, allocate, find_devices
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import DeclaredDevices
from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.telemetry.journals import Sample, parse
from isthmus.testing.engines import new_run_id, wait_ended, whole_log

from .conftest import ACCOUNT, IS_ROOT, MakeEngine

pytestmark = pytest.mark.anyio


def device_class(name: str, **spec: Any) -> DeviceClass:
    return DeviceClass.model_validate({"kind": "DeviceClass", "metadata": {"name": name}, "spec": spec})


def wanting(devices: dict[str, int], script: str = "exec sleep 1000") -> Run:
    return Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script), devices=devices, account=ACCOUNT)


def test_found_by_pattern_and_by_declaration() -> None:
    classes = [
        device_class("null", local={"paths": ["/dev/nul[l]", "/dev/zero"]}),
        device_class("none", local={"paths": ["/dev/no-such-device*"]}),
        device_class("tty", local={"paths": ["/dev/tty1", "/dev/tty0"], "share": ["/dev/full"]}),
        device_class("cpu", power={"busyWatts": 10}),
    ]
    declared = (DeclaredDevices("akida", 2), DeclaredDevices("fpga", 2, ("/dev/a", "/dev/b", "/dev/c")))
    kinds = find_devices(classes, declared, 4)
    assert list(kinds["cpu"].units) == ["0", "1", "2", "3"]
    assert kinds["null"].units == {"0": ("/dev/null",), "1": ("/dev/zero",)}
    assert "none" not in kinds
    assert kinds["akida"].units == {"0": (), "1": ()}
    assert kinds["fpga"].units["1"] == ("/dev/a", "/dev/b", "/dev/c")
    if "tty" in kinds:
        assert kinds["tty"].units == {"0": ("/dev/tty0",), "1": ("/dev/tty1",)}
        assert kinds["tty"].share == ("/dev/full",)


def test_units_of_the_living_are_not_free(tmp_path: Path) -> None:
    kinds = {"b": DeviceKind({"0": ("/dev/b0",), "1": ("/dev/b1",)}, env={"B": "{units}:{paths}"})}
    alive = {"first"}
    first = allocate(tmp_path, "first", {"b": 1}, kinds, alive.__contains__)
    assert (first.units, first.env) == ({"b": ("0",)}, {"B": "0:/dev/b0"})
    with pytest.raises(SiteUnavailable):
        allocate(tmp_path, "second", {"b": 2}, kinds, alive.__contains__)
    assert allocate(tmp_path, "second", {"b": 1}, kinds, alive.__contains__).units == {"b": ("1",)}
    alive.clear()
    assert allocate(tmp_path, "third", {"b": 2}, kinds, alive.__contains__).env == {"B": "0,1:/dev/b0,/dev/b1"}


async def test_handed_out_exclusively_and_found_again(make_engine: MakeEngine) -> None:
    declared = (DeclaredDevices("board", 3),)
    one = await make_engine(devices=declared)
    two = await make_engine(devices=declared, owner="other")  # another site in the same folder
    cls = device_class("board", local={"env": {"BOARDS": "{units}"}})
    assert (await one.probe([cls])).capacity.devices["board"] == 3
    await two.probe([cls])
    script = "echo $BOARDS; exec sleep 1000"
    runs = [wanting({"board": 1}, script) for _ in range(3)]
    seen = await asyncio.gather(*((one, two)[n % 2].submit(run) for n, run in enumerate(runs)))
    assert sorted(observation.devices["board"][0] for observation in seen) == ["0", "1", "2"]
    with pytest.raises(SiteUnavailable, match="0 of the 1"):
        await two.submit(wanting({"board": 1}))
    with pytest.raises(EngineRefused):
        await two.submit(wanting({"board": 4}))
    await one.cancel(runs[0].id, grace=0)
    end = await wait_ended(two, runs[0].id)
    assert end.devices == seen[0].devices
    assert (await whole_log(two, runs[0].id)).decode().split() in ([*seen[0].devices["board"]], [])
    third = await make_engine(devices=declared)
    await third.probe([cls])
    again = await third.submit(wanting({"board": 1}))
    assert again.devices == seen[0].devices


async def test_what_runs_is_found_before_it_is_checked(make_engine: MakeEngine) -> None:
    first = await make_engine(devices=(DeclaredDevices("board", 1),))
    run = wanting({"board": 1})
    seen = await first.submit(run)
    restarted = await make_engine()  # has not been probed, and knows no such class
    assert (await restarted.submit(run)).engine_id == seen.engine_id


async def test_cpu_is_always_a_class(make_engine: MakeEngine) -> None:
    engine = await make_engine(cpus=2)
    assert (await engine.probe([])).capacity.devices == {"cpu": 2}
    run = wanting({"cpu": 2}, "exit 0")
    assert set((await engine.submit(run)).devices["cpu"]) == {"0", "1"}
    await wait_ended(engine, run.id)


async def test_energy_is_estimated_from_the_power_model(make_engine: MakeEngine) -> None:
    engine = await make_engine(devices=(DeclaredDevices("board", 1),))
    await engine.probe([device_class("board", power={"idleWatts": 1, "busyWatts": 5})])
    run = wanting({"board": 1}, "sleep 0.2")
    await engine.submit(run)
    usage = (await wait_ended(engine, run.id)).usage
    assert usage is not None
    assert usage.elapsed_seconds is not None
    assert usage.energy_source == "estimated"
    assert usage.energy_joules == pytest.approx(5 * usage.elapsed_seconds)


async def test_power_and_use_of_a_board_live_and_at_the_end(make_engine: MakeEngine, open_folder: Path) -> None:
    folder = open_folder.parent
    counter, load = folder / "joules", folder / "load"
    counter.write_text("1000\n")
    load.write_text("250\n")
    engine = await make_engine(devices=(DeclaredDevices("board", 2),))
    script = f'test "$ISTHMUS_UNITS_BOARD" = 0,1 && id -u >{folder}/who; cat {counter}'
    (folder / "who").touch()
    (folder / "who").chmod(0o666)
    board = device_class(
        "board",
        power={"busyWatts": 5},
        meter={"source": "Command", "command": ["sh", "-c", script], "unit": "Joules"},
        use={"source": "File", "path": f"{load}", "full": 1000},
    )
    await engine.probe([board])
    run = wanting({"board": 2}, "trap 'exit 0' TERM; while :; do sleep 0.1; done")
    await engine.submit(run)
    assert (await sampled(engine, run.id, 0)).device_use == 0.25
    counter.write_text("1040.5\n")
    load.write_text("1000\n")
    seen = await sampled(engine, run.id, 40.5)  # it has stayed there for some looks
    assert (seen.device_use, seen.estimated) == (1.0, False)
    assert (folder / "who").read_text().strip() == str(ACCOUNT.uid if IS_ROOT else os.getuid())
    counter.write_text("1042\n")
    await engine.cancel(run.id, grace=60)
    usage = (await wait_ended(engine, run.id)).usage
    assert usage is not None
    assert (usage.energy_joules, usage.energy_source) == (42.0, "command"), "it is read once more at the end"
    assert engine._layout.run(run.id).sampling_log.read_text() == ""


async def test_a_meter_that_cannot_be_read_leaves_the_estimate(make_engine: MakeEngine) -> None:
    engine = await make_engine(devices=(DeclaredDevices("board", 1),))
    meter = {"source": "Command", "command": ["no-such-program"]}
    await engine.probe([device_class("board", power={"busyWatts": 5}, meter=meter, use={"source": "NVML"})])
    run = wanting({"board": 1})
    await engine.submit(run)
    seen = await sampled(engine, run.id)
    assert seen.estimated
    assert seen.device_use is None
    await engine.cancel(run.id, grace=0)
    usage = (await wait_ended(engine, run.id)).usage
    assert usage is not None
    assert usage.energy_source == "estimated"
    said = engine._layout.run(run.id).sampling_log.read_text().splitlines()
    assert [line.split(":")[0] for line in said] == ["Command meter of board", "NVML for the use of devices"]
    assert await whole_log(engine, run.id) == b""


async def sampled(engine: LocalEngine, run_id: str, joules: float | None = None) -> Sample:
    """The newest sample, once it has so many joules."""
    async with asyncio.timeout(90):
        while True:
            samples, _ = parse(await engine.read_samples(run_id, 0, 65536))
            if samples and joules in (None, samples[-1].joules):
                return samples[-1]
            await asyncio.sleep(0.05)
