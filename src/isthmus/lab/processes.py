"""The processes of a lab: distinguished from all others by the mark in their environment, or by their namespace.

A process id in a file proves nothing, because ids are used again. The environment of a process does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from isthmus.errors import Misconfigured

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROC = Path("/proc")


class LabRoot(Protocol):
    """Where a lab lives, as far as its processes are concerned."""

    @property
    def mark(self) -> tuple[str, str]:
        """The variable, and its value, that every process of the lab and no other has in its environment."""
        ...

    @property
    def root(self) -> Path:
        """Its folder."""
        ...

    @property
    def path(self) -> str:
        """PATH of all that it runs."""
        ...

    @property
    def variables(self) -> dict[str, str]:
        """What all that it runs finds in its environment beside."""
        ...

    def log(self, name: str) -> Path:
        """Where a daemon writes its log."""
        ...

    def pid_file(self, name: str) -> Path:
        """Where the process id of a daemon is kept."""
        ...


def environment(place: LabRoot, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What every program of the lab is given."""
    return {"PATH": place.path, "LC_ALL": "C", **place.variables, place.mark[0]: place.mark[1], **(more or {})}


def call(
    place: LabRoot, *words: str, check: bool = True, more: Mapping[str, str] | None = None, seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; raises Misconfigured with what it said."""
    try:
        done = subprocess.run(
            words,
            env=environment(place, more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Misconfigured(f"{words[0]} did not end within {seconds:g} s.") from None
    if check and done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:500]
        raise Misconfigured(f"{' '.join(words[:4])} failed ({done.returncode}): {said or 'no reason given'}.")
    return done


def spawn(
    place: LabRoot, name: str, words: Sequence[str], more: Mapping[str, str] | None = None, **options: int
) -> None:
    """Start a program that stays in the foreground, as a daemon of ours."""
    with place.log(name).open("ab") as log:
        child = subprocess.Popen(
            words,
            env=environment(place, more),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **options,  # type: ignore[call-overload]
        )
    place.pid_file(name).write_text(f"{child.pid}\n")
    # Popen returns while the program is still being loaded, and for that moment its environment is empty.
    wait(lambda: child.poll() is not None or _is_ours(place, child.pid), 10)
    child.returncode = 0  # it outlives us on purpose: nobody waits for it, and nobody shall be warned


def pid_of(place: LabRoot, name: str) -> int | None:
    """The process of a daemon, if it lives and is this lab's."""
    try:
        pid = int(place.pid_file(name).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if _is_ours(place, pid) else None


def _is_ours(place: LabRoot, pid: int) -> bool:
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")  # empty for a zombie
        if "=".join(place.mark).encode() in variables:
            return True
        # sshd writes its title over its environment; the title names its configuration.
        return f"-f {place.root}/ssh/config".encode() in (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return False


def stop(place: LabRoot, name: str, patience: float = 20) -> None:
    """End a daemon, at last by force."""
    if (pid := pid_of(place, name)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if not wait(lambda: _gone(place, pid), patience):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait(lambda: _gone(place, pid), 5)
    place.pid_file(name).unlink(missing_ok=True)


def _gone(place: LabRoot, pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return not _is_ours(place, pid)


def all_of(place: LabRoot) -> list[int]:
    """Every process that was started with this lab's mark, but for ourselves and those who started us."""
    found = {int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()}
    return [pid for pid in sorted(found - _ourselves()) if _is_ours(place, pid)]


def _ourselves() -> set[int]:
    """This process, and those that wait for it."""
    pid, found = os.getpid(), set[int]()
    with contextlib.suppress(OSError):
        while pid and pid not in found:
            found.add(pid)
            pid = int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def in_namespace(file: Path) -> list[int]:
    """Every process in the network namespace that the file stands for."""
    try:
        wanted = f"net:[{file.stat().st_ino}]"
    except FileNotFoundError:
        return []
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if str((entry / "ns" / "net").readlink()) == wanted:
                    found.append(int(entry.name))
    return found


def kill_all(find: Callable[[], list[int]], patience: float = 10) -> None:
    """`kill -9` until nothing is found any more."""

    def none_left() -> bool:
        left = find()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return not left

    if not wait(none_left, patience):
        raise Misconfigured(f"Processes {find()} do not end, not even by force.")


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Look until it holds; False if it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def remove_cgroup(top: Path) -> None:
    """Groups become removable a moment after their last process has gone."""

    def gone() -> bool:
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106 - os.walk speaks of strings
        return not top.exists()

    wait(gone, 5)
