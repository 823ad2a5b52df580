"""The part of the contract of engines that make environments of Python packages."""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason
from isthmus.engines.environment_words import PythonSetup

from .working import EngineSuite, SuiteEngine, wait_ended, whole_log

MAKING = "isthmus: making the environment"
_LOOK = "import isthmus_demo, sys; print(isthmus_demo.__file__); print(sys.prefix)"
_PROGRAM = f'isthmus-demo; python -c "{_LOOK}"; touch $VIRTUAL_ENV/x 2>/dev/null || echo closed; echo $OWN; cat'


@pytest.mark.anyio
class EnvironmentContract(EngineSuite):
    """What every engine does that makes environments. `wheels` is a folder that jobs see, with a package in it."""

    async def test_packages_are_installed_once_for_jobs_that_come_at_once(
        self, engine: SuiteEngine, wheels: Path
    ) -> None:
        python = PythonSetup(("isthmus-demo", "isthmus-demo-base == 1.0"), wheels=str(wheels))
        same = PythonSetup(("isthmus-demo-base  ==  1.0", "isthmus-demo"), wheels=str(wheels))
        wishes = (python, same, python)
        runs = [
            self.make_run("sh", "-c", _PROGRAM, python=wish, env={"OWN": "a 'b'"}, milli_cpus=100) for wish in wishes
        ]
        await asyncio.gather(*(engine.submit(run) for run in runs))
        ends = [await wait_ended(engine, run.id) for run in runs]
        logs = [(await whole_log(engine, run.id)).decode() for run in runs]
        assert [end.exit_code for end in ends] == [0, 0, 0], logs
        assert "".join(logs).count(MAKING) == 1
        shown = [[line for line in log.splitlines() if not line.startswith(MAKING)] for log in logs]
        assert shown[0] == shown[1] == shown[2]
        first, file, prefix, *rest = shown[0]
        assert (first, rest) == ("demo on base", ["closed", "a 'b'"])
        assert file.startswith(f"{prefix}/lib/python3")

    async def test_what_cannot_be_installed_fails_the_job_with_the_reason(
        self, engine: SuiteEngine, wheels: Path
    ) -> None:
        wishes = [
            PythonSetup(("no-such-package==7",), wheels=str(wheels)),
            PythonSetup(("isthmus-demo",), "3.99", wheels=str(wheels)),
        ]
        runs = [self.make_run("echo", "never", python=wish) for wish in wishes]
        runs.append(self.make_run("nosuch", python=PythonSetup(("isthmus-demo",), wheels=str(wheels))))
        for run in runs:
            await engine.submit(run)
        ends = [await wait_ended(engine, run.id) for run in runs]
        logs = [(await whole_log(engine, run.id)).decode() for run in runs]
        assert [end.reason for end in ends] == [EndReason.START_FAILED] * 3, logs
        assert "No matching distribution found for no-such-package==7" in ends[0].message
        assert "ERROR: " in logs[0]
        assert "no Python 3.99 here" in ends[1].message
        assert "nosuch" in ends[2].message
        assert not any("never" in log for log in logs)
