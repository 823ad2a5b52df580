"""Finds the programs of Kubernetes: in a given folder, on PATH, in the cache; else they are got into the cache.

Getting them is done by one process at a time, under a lock: two tests that need them at once wait for one build.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from isthmus.errors import Misconfigured
from isthmus.lab.fetching import Say, cache_of, one_at_a_time, reporter
from isthmus.lab.processes import PATH

from . import building, downloading
from .building import PROGRAMS

_TELL = reporter("kubernetes")


def find(folder: Path | None = None, cache: Path | None = None) -> Path | None:
    """The folder that holds all programs, if there is one already."""
    if folder is not None:
        if lacking := [name for name in PROGRAMS if not (folder / name).is_file()]:
            raise Misconfigured(f"{folder} lacks {', '.join(lacking)}. Name a folder that holds all of them.")
        return folder.absolute()
    on_path = {str(Path(found).parent) for name in PROGRAMS if (found := shutil.which(name, path=PATH))}
    if len(on_path) == 1 and all((Path(place := next(iter(on_path))) / name).is_file() for name in PROGRAMS):
        return Path(place)
    return next((place for place in _cached(cache or cache_of("kubernetes")) if _whole(place)), None)


def ensure(folder: Path | None = None, cache: Path | None = None, say: Say = _TELL) -> Path:
    """The folder that holds all programs; downloads or builds them if need be."""
    if found := find(folder, cache):
        return found
    cache = cache or cache_of("kubernetes")
    with one_at_a_time(cache, say):
        if found := find(None, cache):
            return found
        if downloading.reachable():
            place = cache / downloading.VERSION
            downloading.download(place, say)
        else:
            place = cache / building.VERSION
            building.build(place, cache / "build", say)
        say(f"the programs are in {place}")
        return place


def _cached(cache: Path) -> tuple[Path, ...]:
    return cache / downloading.VERSION, cache / building.VERSION


def _whole(place: Path) -> bool:
    return all((place / name).is_file() for name in PROGRAMS)
