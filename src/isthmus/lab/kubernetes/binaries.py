"""Finds the programs of Kubernetes: in a given folder, on PATH, in the cache; else they are got into the cache.

Getting them is done by one process at a time, under a lock: two tests that need them at once wait for one build.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.errors import Misconfigured

from . import building, downloading
from .building import PROGRAMS, Say

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def default_cache() -> Path:
    """The user's cache, outside any checkout."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "isthmus" / "kubernetes"


def tell(line: str) -> None:
    """Progress, one line at a time."""
    sys.stderr.write(f"kubernetes: {line}\n")
    sys.stderr.flush()


def find(folder: Path | None = None, cache: Path | None = None) -> Path | None:
    """The folder that holds all programs, if there is one already."""
    if folder is not None:
        if lacking := [name for name in PROGRAMS if not (folder / name).is_file()]:
            raise Misconfigured(f"{folder} lacks {', '.join(lacking)}. Name a folder that holds all of them.")
        return folder.absolute()
    on_path = {str(Path(found).parent) for name in PROGRAMS if (found := shutil.which(name, path=PATH))}
    if len(on_path) == 1 and all((Path(place := next(iter(on_path))) / name).is_file() for name in PROGRAMS):
        return Path(place)
    return next((place for place in _cached(cache or default_cache()) if _whole(place)), None)


def ensure(folder: Path | None = None, cache: Path | None = None, say: Say = tell) -> Path:
    """The folder that holds all programs; downloads or builds them if need be."""
    if found := find(folder, cache):
        return found
    cache = cache or default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / "lock", say):
        if found := find(None, cache):
            return found
        if downloading.reachable():
            place = cache / downloading.VERSION
            downloading.download(place, say)
        else:
            place = cache / building.BUILD
            building.build(place, cache / "build", say)
        say(f"the programs are in {place}")
        return place


def _cached(cache: Path) -> tuple[Path, ...]:
    return cache / downloading.VERSION, cache / building.BUILD


def _whole(place: Path) -> bool:
    return all((place / name).is_file() for name in PROGRAMS)


@contextmanager
def _lock(path: Path, say: Say) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process gets the programs; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
