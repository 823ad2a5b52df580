"""The same contract as an ordinary user: no accounts to change to, no cgroups, a sandbox of one's own.

As root, the suite is run again in a child process under another account.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import isthmus
from isthmus.engines.base import Run
from isthmus.engines.local.driver import LocalEngine
from isthmus.testing.engines import (
    BrowseContract,
    ConnectContract,
    EngineTraits,
    ExecContract,
    MeasureContract,
    ReadContract,
    Reopen,
    RunContract,
    TaskContract,
    new_run_id,
    wait_ended,
    whole_log,
)

from .conftest import ACCOUNT, IS_ROOT, MakeEngine

NOBODY = 65534
HERE = Path(__file__)
ROOT = HERE.parents[3]

if IS_ROOT:

    def interpreter() -> tuple[str, dict[str, str]]:
        """A Python that the other account may execute, and an environment in which it finds what we have loaded."""
        packages = [path for path in sys.path if path and Path(path).is_dir() and "site-packages" in path]
        source = str(Path(isthmus.__file__).parents[1])
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": ":".join([source, *packages]),
            "HOME": "/nonexistent",
        }
        for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}", "/usr/bin/python3"):
            trial = [python, "-c", "import isthmus.engines.local.driver, pytest, anyio"]
            try:
                done = subprocess.run(
                    trial,
                    user=NOBODY,
                    group=NOBODY,
                    extra_groups=[],
                    env=env,
                    cwd="/",
                    capture_output=True,
                    check=False,
                )
            except OSError:
                continue
            if done.returncode == 0:
                return python, env
        raise AssertionError("no Python that another account may execute: install Debian's python3 (3.11 or later)")

    @pytest.fixture
    def writable() -> Iterator[Path]:
        import shutil
        import tempfile

        folder = Path(tempfile.mkdtemp(prefix="isthmus-nobody-"))
        os.chown(folder, NOBODY, NOBODY)
        yield folder
        shutil.rmtree(folder)

    @pytest.mark.real
    @pytest.mark.timeout(400)
    @pytest.mark.parametrize(
        "words",
        [
            [str(HERE)],
            [str(HERE.with_name("test_images.py")), "-k", "sees or account or nowhere or preloads or devices"],
        ],
        ids=["contract", "images"],
    )
    def test_as_an_ordinary_user(writable: Path, words: list[str]) -> None:
        python, env = interpreter()
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}", "-c"]
        command += [str(ROOT / "pyproject.toml"), f"--basetemp={writable / 'tmp'}", *words]
        # As on most machines, users may open /dev/net/tun, so that their jobs have a network of their own.
        become = f"exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups"
        tun = "mount -t tmpfs -o mode=755 none /dev/net && mknod -m 666 /dev/net/tun c 10 200"
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f'{tun} && {become} "$@"', "sh", *command],
            env={**env, "TMPDIR": str(writable), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=writable,
            capture_output=True,
            text=True,
            timeout=380,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert " passed" in done.stdout

else:

    class TestOrdinaryUser(
        RunContract, ReadContract, BrowseContract, ConnectContract, ExecContract, MeasureContract, TaskContract
    ):
        """Under our own account, in a sandbox where the machine lets users make one."""

        traits = EngineTraits(account=ACCOUNT, reports_out_of_memory=False)

        @pytest.fixture
        def reopen(self, engine: LocalEngine, make_engine: MakeEngine) -> Reopen:
            async def again() -> LocalEngine:
                await engine.close()
                return await make_engine()

            return again

        @pytest.fixture
        def another(self, make_engine: MakeEngine) -> Reopen:
            return make_engine

    @pytest.mark.anyio
    async def test_other_runs_are_out_of_sight(make_engine: MakeEngine, tmp_path: Path) -> None:
        engine = await make_engine()
        isolation = (await engine.probe([])).features["isolation"]
        if isolation != "bubblewrap":
            assert "only jobs of the tenant default run" in isolation
            return
        if os.access("/dev/net/tun", os.W_OK):
            assert (await engine.probe([])).features["network"] == "each job's own (slirp4netns)"
        script = f"ls -A {tmp_path} {engine._layout.root} 2>/dev/null; touch /etc/x 2>/dev/null; id -u; echo end"
        run = Run(new_run_id(), "n", "j", ("/bin/sh", "-c", script))
        await engine.submit(run)
        await wait_ended(engine, run.id)
        assert await whole_log(engine, run.id) == f"{os.getuid()}\nend\n".encode()
