"""What every container runtime promises (`images/runtimes/base.py`), tried on one that is installed, as a person.

A class of tests gives the fixtures `runtime` and `person` (the words that become an account that is not root; none if
whoever runs the tests is not).
"""

# ruff: noqa: D102 - the names of the tests say what they show

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from isthmus.images.runtimes import Bind, ContainerView, Runtime
from isthmus.images.runtimes.base import placeholders, start
from isthmus.images.runtimes.probing import parse, script

PATIENCE = 60.0
PATH = f"{os.defpath}:/usr/sbin:/sbin"


class RuntimeContract:
    """One runtime, on an unpacked image with a busybox in it."""

    @pytest.fixture
    def account(self) -> str:
        """Whose programs they are."""
        return "games" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name

    @pytest.fixture
    def person(self, account: str) -> Sequence[str]:
        """The words that become the account."""
        return ("setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups", "--") if _is_root() else ()

    @pytest.fixture
    def container(self, root: Path, work: Path) -> ContainerView:
        """The image, and what is bound over it."""
        binds = (Bind(str(work), "/job", True), Bind(str(work / "run"), "/run/isthmus", True))
        return ContainerView(str(root), binds)

    def begin(
        self,
        runtime: Runtime,
        container: ContainerView,
        person: Sequence[str],
        text: str,
        libraries: Sequence[str] = (),
    ) -> subprocess.Popen[str]:
        lines = f"set -- /bin/sh -c {_quoted('cd /job; ' + text)}\n{start(runtime, container, libraries)}"
        env = {"PATH": PATH, "GIVEN": "a b"}
        return subprocess.Popen(
            [*person, "/bin/sh", "-c", lines],
            env=env, cwd="/", text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *args: object, stdin: str = "") -> tuple[int, str, str]:
        child = self.begin(*args)  # type: ignore[arg-type]
        out, err = child.communicate(stdin, timeout=PATIENCE)
        return child.returncode, out, err

    def test_it_is_found_and_works(self, runtime: Runtime, person: Sequence[str]) -> None:
        done = subprocess.run(
            [*person, "/bin/sh", "-c", script([runtime])],
            env={"PATH": PATH}, cwd="/", capture_output=True, text=True, check=True,
        )  # fmt: skip
        found = parse(done.stdout, [runtime])
        assert found is not None
        assert (found.usable, found.machine) == ((runtime.name,), os.uname().machine)
        assert found.found[0].version

    def test_what_a_program_sees(
        self, runtime: Runtime, container: ContainerView, person: Sequence[str], account: str, work: Path
    ) -> None:
        text = "cat /etc/os-release; pwd; cat; echo $GIVEN; echo made >made; touch /job/x && ls /job; exit 7"
        code, out, err = self.run(runtime, container, person, text, stdin="read on\n")
        assert (code, out.splitlines()[:4]) == (7, ["ID=tiny", "/job", "read on", "a b"]), err
        assert "made" in out.splitlines()
        assert (work / "made").read_text() == "made\n"
        assert (work / "made").stat().st_uid == pwd.getpwnam(account).pw_uid

    def test_programs_have_the_same_numbers_and_signals_reach_them(
        self, runtime: Runtime, container: ContainerView, person: Sequence[str], work: Path
    ) -> None:
        text = "trap 'echo heard; exit 5' TERM; echo $$ >/job/pid; while :; do sleep 0.1; done"
        child = self.begin(runtime, container, person, text)
        until = time.monotonic() + PATIENCE
        while not (work / "pid").exists() or not (work / "pid").read_text().strip():
            assert time.monotonic() < until, child.communicate()
            time.sleep(0.05)
        os.kill(int((work / "pid").read_text()), signal.SIGTERM)
        out, err = child.communicate(timeout=PATIENCE)
        assert out == "heard\n", err

    def test_files_of_the_machine_that_are_shown(
        self, runtime: Runtime, container: ContainerView, person: Sequence[str], work: Path
    ) -> None:
        machine = work.parent
        (machine / "libstand-in.so.1").write_text("driver")
        (work / "libraries").mkdir()
        patterns = [f"{machine}/libstand-in.so*", f"{machine}/no-such*"]
        subprocess.run(["/bin/sh", "-c", placeholders(str(work / "libraries"), patterns)], check=True)
        shown = ContainerView(container.root, (*container.binds, Bind(str(work / "libraries"), "/run/libraries")))
        text = "ls /run/libraries; cat /run/libraries/*"
        assert self.run(runtime, shown, person, text, patterns)[:2] == (0, "libstand-in.so.1\ndriver")


def _is_root() -> bool:
    return os.geteuid() == 0


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
