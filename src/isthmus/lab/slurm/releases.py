"""Slurm of another Debian release than this machine's: fetched into the cache, and put into a lab's folder.

Such programs need that release's libraries, its C library among them. `install` makes a folder of a lab in which every
program names its own loader and libraries, so that it runs on this machine as any other, and what it starts gets
nothing of that: a job's own programs are this machine's.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from isthmus.errors import Invalid, Misconfigured
from isthmus.lab.fetching import PrivateApt, Say, cache_of, one_at_a_time, reporter, run

_NAME = re.compile(r"[a-z][a-z-]{1,30}")
_PACKAGES = (
    "slurmctld", "slurmd", "slurmrestd", "slurmdbd", "slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-jwt-plugin",
    "slurm-wlm-mysql-plugin", "libmunge2", "patchelf",
)  # fmt: skip
_WANTED = re.compile(r"(slurm|lib|patchelf)")
"""Of what apt would install: not its tools, which nobody runs here."""
_WHOLE = "whole"


def fetch(release: str, cache: Path | None = None, say: Say | None = None) -> Path:
    """Where Slurm of a release is unpacked; fetched (30 MB) if it is not there yet."""
    if not _NAME.fullmatch(release):
        raise Invalid(f"{release!r} is not the name of a Debian release, such as trixie.")
    cache, say = cache or cache_of("slurm"), say or reporter("slurm")
    place = cache / release
    if (place / _WHOLE).exists():
        return place
    with one_at_a_time(cache, say):
        if not (place / _WHOLE).exists():
            say(f"fetching Slurm of Debian {release} (30 MB)")
            shutil.rmtree(place, ignore_errors=True)
            apt = PrivateApt(place / "apt", release)
            apt.call("install", "-qq", "--yes", "--download-only", *_PACKAGES)
            for archive in apt.archives:
                if _WANTED.match(archive.name):
                    run(["dpkg-deb", "--extract", str(archive), str(place / "root")])
            shutil.rmtree(place / "apt")
            (place / _WHOLE).touch()
    return place


def install(unpacked: Path, folder: Path) -> None:
    """Make `folder/bin` and `folder/lib` of what was unpacked; they run from there only."""
    root = unpacked / "root" / "usr"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    libraries = _libraries(root)
    shutil.copytree(libraries, folder / "lib", symlinks=True, ignore=shutil.ignore_patterns("perl*", "systemd"))
    loader = next((folder / "lib").glob("ld-linux*"), None)
    if loader is None:
        raise Misconfigured(f"{libraries} holds no loader; remove {unpacked}, so that it is fetched again.")
    path = f"{folder}/lib:{plugins(folder)}"
    patch = [str(loader), "--library-path", path, str(root / "bin" / "patchelf"), "--force-rpath", "--set-rpath", path]
    programs = []
    for name in ("bin", "sbin"):
        for file in sorted((root / name).iterdir()):
            if file.name.startswith("s") and b"libslurmfull" in file.read_bytes():
                target = folder / "bin" / file.name.removesuffix("-wlm")
                shutil.copy(file, target)
                programs.append(str(target))
    run([*patch, "--set-interpreter", str(loader), *programs])


def plugins(folder: Path) -> Path:
    """The plugins of an installed Slurm."""
    return folder / "lib" / "slurm-wlm"


def _libraries(root: Path) -> Path:
    found = next((root / "lib").glob("*-linux-gnu*/slurm-wlm"), None)
    if found is None:
        raise Misconfigured(f"{root} holds no Slurm; remove it, so that it is fetched again.")
    return found.parent
