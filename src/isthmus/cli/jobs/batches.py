"""Batch scripts with `#SBATCH` lines: honoured as sbatch does, and what is not is said."""

from __future__ import annotations

import os
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


def _devices(client: Client) -> dict[str, str]:
    """What Slurm calls each class of device."""
    found = {}
    for device in client.list("deviceclasses"):
        gres = ((device.get("spec") or {}).get("slurm") or {}).get("gres")
        if gres:
            found[str(gres)] = str(device["metadata"]["name"])
    return found
