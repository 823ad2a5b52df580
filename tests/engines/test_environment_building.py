"""The text that makes environments, as a process: killed anywhere it leaves nothing half made, and says why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from isthmus.engines import environment_building
from isthmus.engines.environment_words import PythonSetup, in_environment
from isthmus.testing.wheels import put_demo

_UV = """\
#!/bin/sh
case $1 in
venv) for place; do :; done; mkdir -p "$place/bin"; ln -s /bin/true "$place/bin/python" ;;
*) {rest}; echo package >"${{5%/bin/python}}/package" ;;
esac
"""
# The nth thing that it does to files, or begins, is its last.
_KILLED = """\
import sys, os, signal
wanted, done = int(sys.argv[2]), 0
def hook(event, args):
    global done
    if event in ("os.mkdir", "os.rename", "os.symlink", "os.remove", "os.chmod", "os.utime", "subprocess.Popen",
                 "fcntl.flock") or event == "open" and isinstance(args[1], str) and "w" in args[1]:
        done += 1
        if done == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
text = open(sys.argv[1]).read()
sys.argv[:3] = [sys.argv[0]]
exec(compile(text, "building", "exec"), {"__name__": "__main__"})
"""


@pytest.fixture
def uv(tmp_path: Path) -> Path:
    """A stand-in for uv, quick enough to be killed many times."""
    return put_uv(tmp_path, ":")


def put_uv(tmp_path: Path, rest: str) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir(exist_ok=True)
    (folder / "uv").write_text(_UV.format(rest=rest))
    (folder / "uv").chmod(0o755)
    return folder


def words_for(place: Path, *requirements: str, wheels: str = "", most: int = 2**40) -> list[str]:
    setup = PythonSetup(requirements or ("demo",), wheels=wheels)
    words = ["sh", "-c", "ls -d $VIRTUAL_ENV; cat $VIRTUAL_ENV/package 2>/dev/null; :"]
    return in_environment(setup, words, place=str(place), report=str(place.parent / "report"), max_bytes=most)


def result(words: list[str], path: Path | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{path}:/usr/bin:/bin" if path else "/usr/bin:/bin", "HOME": "/nowhere"}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, **options)


def test_killed_at_every_step_it_leaves_nothing_half_made(tmp_path: Path, uv: Path) -> None:
    place, text = tmp_path / "place", environment_building.__file__
    plan = words_for(place)[5]
    steps = 0
    while True:
        steps += 1
        killed = result(["/usr/bin/env", "python3", "-I", "-S", "-c", _KILLED, text, str(steps), plan, "true"], uv)
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed
        after = result(words_for(place), uv)
        where, said = after.stdout.split()
        assert said == "package"
        # One is there, whole, and what the killed one left is gone.
        assert [str(path) for path in (place / "made").iterdir()] == [where]
        assert [path.name[0] == "." for path in (place / "ready").iterdir()] == [False]
        environment_building.remove(str(place))
    assert steps > 15


def test_no_space_left(tmp_path: Path) -> None:
    """On a tiny file system, with the real pip."""
    put_demo(tmp_path / "wheels")
    full, place = tmp_path / "full", tmp_path / "full/place"
    full.mkdir()
    words = words_for(place, "isthmus-demo", wheels=str(tmp_path / "wheels"))
    mounted = f'mount -t tmpfs -o size=60k tmpfs {full} && mkdir {place} && "$@"; code=$?; ls {place}/made; exit $code'
    done = result(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted, "sh", *words])
    assert (done.returncode, done.stdout) == (1, "")
    assert "no space left" in done.stderr.splitlines()[-1].lower()


def test_a_signal_ends_the_installer_too(tmp_path: Path) -> None:
    uv = put_uv(tmp_path, f"echo $$ >{tmp_path}/number; exec sleep 1000")
    env = {"PATH": f"{uv}:/usr/bin:/bin"}
    with subprocess.Popen(words_for(tmp_path / "place"), env=env, stderr=subprocess.DEVNULL) as child:
        while not (tmp_path / "number").exists() or not (tmp_path / "number").read_text().strip():
            assert child.poll() is None
        child.terminate()
        assert child.wait() == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "number").read_text()), 0)
    assert list((tmp_path / "place/made").iterdir()) == []


def test_what_can_install_nothing_says_so(tmp_path: Path) -> None:
    """A Python without pip, venv and uv: made by hiding them."""
    hidden = tmp_path / "programs"
    hidden.mkdir()
    (hidden / "python3").write_text(
        '#!/bin/sh\ncase "$*" in *"-m pip"* | *ensurepip*) exit 1 ;; esac\nexec /usr/bin/python3 "$@"\n'
    )
    (hidden / "python3").chmod(0o755)
    plan = json.loads(words_for(tmp_path / "place")[5])
    with pytest.raises(environment_building.CannotMake, match="can install nothing"):
        environment_building.install(plan, str(hidden / "python3"), str(tmp_path))


def test_the_same_packages_have_the_same_digest() -> None:
    one = PythonSetup(("numpy  == 2.1", "scipy"))
    assert one.digest == PythonSetup(("scipy", "numpy == 2.1", "scipy")).digest
    assert one.digest != PythonSetup(("scipy", "numpy == 2.2")).digest
    assert one.digest != PythonSetup(("scipy", "numpy == 2.1"), "3.12").digest
