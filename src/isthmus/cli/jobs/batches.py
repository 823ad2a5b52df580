"""Batch scripts with `#SBATCH` lines: honoured as sbatch does, and what is not is said."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from isthmus.cli.failures import say
from isthmus.client.sync import Client

_SIGN = "#SBATCH"


def honour(client: Client, job: dict[str, Any], file: str = "", *, quiet: bool = False) -> dict[str, Any]:
    """The job with what the lines of its script, from this file, say; what the job itself says goes first."""
    script = job["spec"].get("script")
    if not script or _SIGN not in script:
        return job
    from isthmus.formats.sbatch import has_directives, merged, read_batch

    if not has_directives(script):
        return job
    batch = read_batch(script, _devices(client), os.path.basename(file))  # noqa: PTH119
    if not quiet:
        if batch.program:
            say(f"the script calls {batch.program}, so it runs at Slurm sites only", "33")
        for sentence in batch.unheeded:
            say(f"{_SIGN} {sentence}", "33")
    return merged(job, batch)


_PART = re.compile(r"%\d{0,2}[A-Za-z]")
_OWN = re.compile(r"%\d{0,2}[ajJ]")


def gather(job: dict[str, Any], paths: list[str]) -> list[str]:
    """Put the logs of an array's elements where sbatch writes them: beside each other, by names of their own."""
    spec = job.get("spec") or {}
    wanted = [name for name in (spec.get("logFiles") or {}).values() if isinstance(name, str) and _OWN.search(name)]
    if not spec.get("array") or not wanted:
        return paths
    top = spec.get("workingDir") or "."
    logs = [_matcher(os.path.normpath(f"{top}/{name}")) for name in wanted]
    found = []
    for path in paths:
        folder, _, name = path.partition("/")
        if any(log.fullmatch(name) for log in logs):
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)  # noqa: PTH103, PTH120
            os.replace(path, name)  # noqa: PTH105
            _remove_empty(os.path.dirname(path), folder)  # noqa: PTH120
            path = name
        found.append(path)
    return found


def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile("[^/]*".join(re.escape(text) for text in _PART.split(pattern)).replace("%%", "%"))


def _remove_empty(folder: str, top: str) -> None:
    with contextlib.suppress(OSError):  # something else is in it
        while len(folder) >= len(top):
            os.rmdir(folder)  # noqa: PTH106
            folder = os.path.dirname(folder)  # noqa: PTH120


def _devices(client: Client) -> dict[str, str]:
    """What Slurm calls each class of device."""
    found = {}
    for device in client.list("deviceclasses"):
        gres = ((device.get("spec") or {}).get("slurm") or {}).get("gres")
        if gres:
            found[str(gres)] = str(device["metadata"]["name"])
    return found
