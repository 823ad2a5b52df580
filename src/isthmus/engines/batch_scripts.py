"""What a script written for `sbatch` expects of the place where it runs: variables, and names of files. Pure.

At Slurm sites Slurm itself sets nearly all variables. Elsewhere a script with `#SBATCH` lines, or that mentions
variables of Slurm, finds those that are named here. Slurm knows jobs by numbers: where there is none, and for arrays,
whose elements are jobs of their own at every site, it is drawn from the uid, above all numbers that Slurm gives: so it
is never the number of somebody else's job.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable

from isthmus.resources.jobs import uid_of_run

from .base import Run

NAME = "SLURM_JOB_NAME"
"""The name that a script gives itself, which need not be unique: a variable of the job."""
_NO_INDEX = "4294967294"
"""What Slurm writes for the index of a job that is no element of an array."""
_FIRST, _AFTER_LAST = 2**26, 2**31
_MARKS = ("#SBATCH", "SLURM_")
_PART = re.compile(r"%(\d{0,2})([%AajJNnstux])")
_MOST_DIGITS = 10


def number_of(uid: str) -> int:
    """The number of a job that has none of Slurm's."""
    digest = hashlib.sha256(uid.encode()).digest()
    return _FIRST + int.from_bytes(digest[:8]) % (_AFTER_LAST - _FIRST)


def expand(pattern: str, value: Callable[[str, int], str], literal: Callable[[str], str] = str) -> str:
    """A pattern of `sbatch --output` with what its parts stand for.

    `value` is asked for the text of a part by its letter and the least number of digits, `literal` for that of
    everything else.
    """
    found, at = "", 0
    for match in _PART.finditer(pattern):
        before = pattern[at : match.start()] + ("%" if match[2] == "%" else "")
        found += literal(before) if before else ""
        if match[2] != "%":
            found += value(match[2], min(int(match[1] or 0), _MOST_DIGITS))
        at = match.end()
    return found + (literal(pattern[at:]) if at < len(pattern) else "")


def parts(number: str, name: str, *, index: int | None = None, array: str = "", user: str, node: str) -> dict[str, str]:
    """What the letters of such a pattern stand for."""
    return {
        "A": array or number,
        "a": _NO_INDEX if index is None else str(index),
        "j": number,
        "J": number,
        "N": node,
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": user,
        "x": name.replace("/", "-").lstrip(".") or "-",  # no more than a name, wherever it stands in a path
    }


def filled(text: str, width: int) -> str:
    """A number with zeros before it; other texts are as long as they are."""
    return text.zfill(width) if text.isdigit() else text


def name_of(run: Run) -> str:
    """What the script calls itself, or the job's name."""
    return run.env.get(NAME) or run.job


def file_name(pattern: str, run: Run, *, user: str, node: str) -> str:
    """Where the output of a run goes whose site is not Slurm's."""
    number = str(number_of(uid_of_run(run.id)))
    part = run.array
    known = parts(
        number,
        name_of(run),
        index=part.index if part else None,
        array=str(part.number) if part else "",
        user=user,
        node=node,
    )
    return expand(pattern, lambda letter, width: filled(known[letter], width))


def variables(run: Run, *, folder: str, user: str, node: str) -> dict[str, str]:
    """What a batch script finds where there is no Slurm; nothing for other work."""
    if run.script is None or not any(mark in run.script for mark in _MARKS):
        return {}
    number, cpus = str(number_of(uid_of_run(run.id))), str(math.ceil(run.milli_cpus / 1000))
    found = {
        "SLURM_JOB_ID": number,
        "SLURM_JOBID": number,
        NAME: name_of(run),
        "SLURM_JOB_USER": user,
        "SLURM_SUBMIT_DIR": folder,
        "SLURM_SUBMIT_HOST": node,
        "SLURM_NTASKS": str(run.tasks),
        "SLURM_NPROCS": str(run.tasks),
        "SLURM_TASKS_PER_NODE": str(run.tasks),
        "SLURM_CPUS_PER_TASK": cpus_per_task(run),
        "SLURM_CPUS_ON_NODE": cpus,
        "SLURM_JOB_CPUS_PER_NODE": cpus,
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NODELIST": node,
        "SLURM_NODELIST": node,
        "SLURMD_NODENAME": node,
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        **array_variables(run),
    }
    found |= {"SLURM_MEM_PER_NODE": str(run.memory_bytes >> 20)} if run.memory_bytes else {}
    return {name: value for name, value in found.items() if value}


def array_variables(run: Run) -> dict[str, str]:
    """Those of an element of an array; at Slurm sites too, where Slurm does not know of the array."""
    if (part := run.array) is None:
        return {}
    return {
        "SLURM_ARRAY_JOB_ID": str(part.number),
        "SLURM_ARRAY_TASK_ID": str(part.index),
        "SLURM_ARRAY_TASK_COUNT": str(part.count),
        "SLURM_ARRAY_TASK_MIN": str(part.first),
        "SLURM_ARRAY_TASK_MAX": str(part.last),
        "SLURM_ARRAY_TASK_STEP": str(part.step),
    }


def cpus_per_task(run: Run) -> str:
    """Whole cpus of each task."""
    return str(max(1, math.ceil(run.milli_cpus / 1000 / max(1, run.tasks, run.nodes))))
