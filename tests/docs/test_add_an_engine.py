"""CONTRIBUTING's "Add an engine", followed to the letter: a control plane runs jobs on the engine of the page.

Its modules are made of the page's own text, in this process alone. The other program, which carries runs out, is here.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from isthmus.config import ServerSettings
from isthmus.engines.base import Run, RunState
from isthmus.errors import EngineRefused
from isthmus.resources.kinds import SITE, TENANT
from isthmus.resources.sites import Site
from isthmus.server import drivers
from isthmus.server.drivers import Drivers, MakeDriver
from isthmus.store.opening import open_store
from isthmus.testing.engines import new_run_id
from isthmus.testing.planes import Plane
from isthmus.testing.virtual_time import on_virtual_time

ROOT = Path(__file__).parents[2]


def blocks() -> list[str]:
    """The code of the section: the driver, and its entry."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page[page.index("## Add an engine") :].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Mapping[str, MakeDriver]]:
    """All drivers, with that of the page."""
    driver, entry = blocks()
    path = tmp_path / "driver.py"
    path.write_text(driver)
    spec = importlib.util.spec_from_file_location("isthmus.engines.spool.driver", path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[spec.name])
        names = dict(vars(drivers))
        exec(compile(entry, "drivers.py", "exec"), names)
        yield names["DRIVERS"]
    finally:
        del sys.modules[spec.name]


class Executor:
    """The other program."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ran: Counter[str] = Counter()

    async def work(self) -> None:
        while True:
            for run in self._folder.glob("*.run"):
                self._look(run)
            await asyncio.sleep(0.5)

    def _look(self, run: Path) -> None:
        begun, ended = run.with_suffix(".begun"), run.with_suffix(".ended")
        if ended.exists():
            return
        if run.with_suffix(".cancel").exists():
            self._end(ended, "cancelled")
        elif not begun.exists():
            begun.touch()
            word = json.loads(run.read_text())[0]
            self.ran[word] += 1
            if word.startswith("end-with-"):
                self._end(ended, word.removeprefix("end-with-"))

    @staticmethod
    def _end(ended: Path, word: str) -> None:
        whole = ended.with_suffix(".new")
        whole.write_text(word)
        whole.rename(ended)


Story = Callable[[Plane, Executor], Coroutine[Any, Any, None]]


def at_a_spool(folder: Path, known: Mapping[str, MakeDriver], story: Story) -> None:
    """A control plane with a site of this driver, and the program behind it."""

    async def whole() -> None:
        store = await open_store(folder / "plane.db")
        plane = Plane(store, folder)
        settings = ServerSettings(data=folder / "data")
        plane.make_engine = Drivers(settings, known).make  # type: ignore[method-assign]
        await plane.create(TENANT, "default", {})
        await plane.create(SITE, "spool", {"driver": "spool", "probeInterval": "2s"})
        plane.start()
        await plane.status(SITE, "spool", phase="Ready")
        executor = Executor(settings.sites / "spool")
        work = asyncio.create_task(executor.work())
        try:
            await story(plane, executor)
        finally:
            work.cancel()
            await plane.stop()
            await store.close()

    on_virtual_time(whole())


def test_jobs_run_there(tmp_path: Path, known: Mapping[str, MakeDriver]) -> None:
    async def story(it: Plane, executor: Executor) -> None:
        for word in ("end-with-0", "end-with-7", "lasts"):
            await it.submit(word, command=[word])
        assert (await it.ended("end-with-0")).status.phase == "Succeeded"
        assert (await it.ended("end-with-7")).status.exit_code == 7
        await it.phase("lasts", "Running")
        await it.change("lasts", intent="Cancel")
        assert (await it.ended("lasts")).status.phase == "Cancelled"
        assert executor.ran == {"end-with-0": 1, "end-with-7": 1, "lasts": 1}

    at_a_spool(tmp_path, known, story)


def test_a_control_plane_that_dies_finds_its_runs_again(tmp_path: Path, known: Mapping[str, MakeDriver]) -> None:
    async def story(it: Plane, executor: Executor) -> None:
        await it.submit("lasts")
        await it.phase("lasts", "Running")
        await it.stop()
        it.start()
        await it.change("lasts", intent="Cancel")
        assert (await it.ended("lasts")).status.phase == "Cancelled"
        assert sum(executor.ran.values()) == 1

    at_a_spool(tmp_path, known, story)


@pytest.mark.anyio
async def test_the_rules_that_the_page_names(tmp_path: Path, known: Mapping[str, MakeDriver]) -> None:
    site = Site.model_validate({"metadata": {"name": "spool"}, "spec": {"driver": "spool"}})
    settings = ServerSettings(data=tmp_path)
    first, second = (known["spool"](site, settings) for _ in range(2))
    await first.open()
    await second.open()
    run = Run(new_run_id(), "t", "j", command=("true",))
    assert await first.observe(run.id) is None
    seen = [await engine.submit(run) for engine in (first, second)]
    assert [one.state for one in seen] == [RunState.QUEUED] * 2
    assert [path.name for path in (settings.sites / "spool").iterdir()] == [f"{run.id}.run"]
    with pytest.raises(EngineRefused, match="a spool runs commands"):
        first.check(Run(new_run_id(), "t", "j", script="echo"))
    assert set(first.tasks.failures()) == set()
    for engine in (first, second):
        await engine.close()
