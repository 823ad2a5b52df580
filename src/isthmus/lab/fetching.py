"""Programs that a lab fetches: a cache outside any checkout, one process at a time, and apt with folders of its own.

A machine need not have every release, or source packages, among its apt sources. A private list, made from the
machine's own mirrors, is used; the machine's lists and packages stay as they are. apt verifies what it fetches against
the signed index.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.errors import Misconfigured

from .processes import PATH

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

Say = Callable[[str], None]


def cache_of(name: str) -> Path:
    """A folder of the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "isthmus" / name


def reporter(what: str) -> Say:
    """Reports progress, one line at a time."""

    def notify(line: str) -> None:
        sys.stderr.write(f"{what}: {line}\n")
        sys.stderr.flush()

    return notify


@contextmanager
def one_at_a_time(cache: Path, say: Say) -> Iterator[None]:
    """Two that need the same programs at once wait for one."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process gets the programs; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class PrivateApt:
    """apt for one release of Debian, with its lists, its cache and no installed packages below a folder."""

    def __init__(self, folder: Path, release: str, kind: str = "deb") -> None:
        self.folder = folder
        for name in ("lists/partial", "cache/archives/partial", "parts"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text("".join(f"{kind} {mirror} {release} main\n" for mirror in _mirrors()))
        self.call("update", "-qq")

    @property
    def archives(self) -> list[Path]:
        """The packages that were downloaded."""
        return sorted((self.folder / "cache" / "archives").glob("*.deb"))

    def call(self, *words: str) -> None:
        """apt-get, in the folder."""
        folder = self.folder
        options = [
            f"Dir::Etc::SourceList={folder}/sources.list", f"Dir::Etc::SourceParts={folder}/parts",
            f"Dir::Etc::PreferencesParts={folder}/parts", f"Dir::State::Lists={folder}/lists",
            f"Dir::State::Status={folder}/status", f"Dir::Cache={folder}/cache", "APT::Sandbox::User=root",
            "APT::Install-Recommends=false", "Acquire::Languages=none", "Acquire::Retries=3",
        ]  # fmt: skip
        run(["apt-get", *(word for option in options for word in ("-o", option)), *words], folder=folder)


def _mirrors() -> list[str]:
    """The mirrors of Debian that this machine uses; Debian's own address where it names none."""
    said = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"])
    found = [line.split()[0] for line in said.splitlines() if line.split()[0].rstrip("/").endswith("/debian")]
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    return [f"{signed}{mirror}" for mirror in dict.fromkeys(found)] or [f"{signed}http://deb.debian.org/debian/"]


def run(words: Iterable[str], env: dict[str, str] | None = None, folder: Path | None = None) -> str:
    """Run a program to its end, however long it takes; raises Misconfigured with what it said."""
    listed = list(words)
    done = subprocess.run(
        listed, env=env or {"PATH": PATH, "LC_ALL": "C"}, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-800:]
        raise Misconfigured(f"{listed[0]} {listed[-1]} failed while programs were fetched: {said or 'no reason given'}")
    return done.stdout
