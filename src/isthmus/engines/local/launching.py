"""The plan of a run: everything the supervisor needs, worked out beforehand and written as plain data. Pure.

A job is started through a **launcher**, a few lines of shell that run as the job's own user inside its sandbox: they
set the environment, which so is never seen by anything that has more rights than the job, nor by `ps`; and they report
through a descriptor whether the program exists, which so is distinguished exactly from a program that fails. They begin
with a word from the supervisor, which it gives once it is written down that the run is started.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus._kit.quantities import format_bytes
from isthmus.engines import batch_scripts, meters
from isthmus.engines.base import Run
from isthmus.engines.environment_words import in_environment
from isthmus.engines.shell_lines import cannot_run, exports, of_script, read_from, through_env
from isthmus.errors import Cause, EngineRefused
from isthmus.images.cache import UnpackedImage

from .devices import Grant
from .isolation import ENVIRONMENTS_HOME, JOB_HOME, LAUNCH_HOME, AccountIdentity, Sandbox
from .layout import RunFolder
from .supervising import GO_FD, REPORT_FD

_CANNOT_RUN = cannot_run('"$1"')

GRACE_SECONDS = 10.0
_IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH in an image that sets none: what container runtimes give."""
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_words(run: Run) -> None:
    """Refuse names and words that no operating system would take."""
    for name in run.env:
        if not _ENV_NAME.fullmatch(name):
            message = "must consist of letters, digits and _ and not begin with a digit"
            raise EngineRefused(
                f"The environment variable {name!r} {message}.", causes=(Cause("spec.env", f"{name!r} {message}"),)
            )
    words = [*run.command, *run.args, *run.env.values(), run.script or ""]
    if any("\0" in word for word in words):
        raise EngineRefused("A word of the command, script or environment contains a NUL character. Remove it.")


def environment(
    run: Run,
    identity: AccountIdentity,
    grant: Grant,
    *,
    path: str,
    home: str,
    tmp: str,
    node: str,
    image: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The job's whole environment; nothing of the control plane's own is in it.

    What an image sets comes before what we set by default, but for the job's own folders and what it may use.

    `OMP_NUM_THREADS` follows the cpus that were asked for: a library that starts a thread for each of 64 cores and
    may use one of them is slower than with one thread. Whoever sets it decides.
    """
    cpus = run.milli_cpus / 1000
    usual = {"PATH": path if image is None else _IMAGE_PATH, "SHELL": "/bin/sh", "LANG": "C.UTF-8", **(image or {})}
    ours = {
        "HOME": home,
        "USER": identity.name,
        "LOGNAME": identity.name,
        "TMPDIR": tmp,
        "OMP_NUM_THREADS": str(max(1, math.ceil(cpus))),
    }
    platform = {
        "ISTHMUS_JOB": run.job,
        "ISTHMUS_NAMESPACE": run.namespace,
        "ISTHMUS_RUN_ID": run.id,
        "ISTHMUS_CPUS": f"{cpus:g}",
        "ISTHMUS_TASKS": str(run.tasks),
    }
    batch = batch_scripts.variables(run, folder=home, user=identity.name, node=node)
    return {**usual, **ours, **batch, **grant.env, **run.env, **platform}


def launcher(
    env: Mapping[str, str], start: str = "", stdin: str | None = None, *, image: bool = False, reports: bool = False
) -> str:
    """The shell lines that set the environment and become the program given as arguments, in the folder to start in.

    What the program reads is opened here, with no more rights than the job has. `reports`: it has something to report
    itself, before it becomes the job's.
    """
    close = "" if reports else f" {REPORT_FD}>&-"
    lines = [
        f"printf + >&{REPORT_FD}",
        f"read -r go <&{GO_FD} || exit 127",
        f"exec {GO_FD}<&-",
        *([f"cd {JOB_HOME} || exit 127"] if image else []),
        *exports(env),
        # A command beside the job has a standard input of its own.
        *([f'if [ -z "${{ISTHMUS_BESIDE-}}" ]; then {read_from(stdin)}; fi'] if stdin else []),
        "unset ISTHMUS_BESIDE",
        *([_start_in(start)] if start else []),
        f"if {_CANNOT_RUN}; then",
        f"  printf missing >&{REPORT_FD}",
        '  echo "isthmus: $1: not found, or not executable" >&2',
        "  exit 127",
        "fi",
        f'exec {through_env(env)}"$@"{close}',
    ]
    return "\n".join(lines) + "\n"


def _start_in(folder: str) -> str:
    path = shlex.quote(folder)
    return (
        f"""cd -- {path} || {{ echo "isthmus: the job's folder has no folder "{path}" to start in" >&2; exit 127; }}"""
    )


def program(run: Run, script: str) -> list[str]:
    """The command to run; `script` is the file that holds the run's script."""
    return list(run.command) if run.script is None else [*of_script(run.script, script), *run.args]


def make_spec(
    run: Run,
    folder: RunFolder,
    identity: AccountIdentity,
    grant: Grant,
    sandbox: Sandbox | None,
    *,
    cgroup: Mapping[str, Any] | None,
    memory_bytes: int,
    limits_memory: bool,
    max_log_bytes: int,
    max_file_bytes: int,
    max_disk_bytes: int,
    superuser: bool,
    powercap: str,
    path: str,
    image: UnpackedImage | None = None,
    environments: Path | None = None,
    max_environment_bytes: int = 0,
) -> dict[str, Any]:
    """What the supervisor is given; `environments` is the tenant's folder for them, where the run wants one."""
    launch = LAUNCH_HOME if sandbox else str(folder.launch)
    command = program(run, f"{launch}/script")
    words = in_environment(
        run.python,
        command,
        place=ENVIRONMENTS_HOME if sandbox else str(environments),
        report=f"&{REPORT_FD}",
        max_bytes=max_environment_bytes * 4 // 5,
        image=image.digest if image else "",
    )
    prefix = sandbox.command(identity, image=image is not None) if sandbox else []
    root = image.root if image else None
    drop = superuser and sandbox is None
    return {
        "run": run.id,
        "argv": [*prefix, "/bin/sh", f"{launch}/launcher", *words],
        "options": sandbox.options(folder, grant.paths, image=root, environments=environments) if sandbox else [],
        "network": sandbox.router if sandbox else None,
        "chroots": image is not None and superuser,
        "image": image.digest if image else None,
        "env": {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        "program": command[0],
        "sandboxed": sandbox is not None,
        "identity": _numbers(identity) if drop else None,
        "owner": identity.uid,
        "separate_streams": run.separate_streams,
        "time_limit": run.time_limit,
        "grace": GRACE_SECONDS,
        "milli_cpus": run.milli_cpus,
        "cgroup": cgroup,
        # What a process may write to, not what it may map: many runtimes map far more than they use.
        "rlimits": {
            **({} if limits_memory else {"RLIMIT_DATA": memory_bytes}),
            **({"RLIMIT_FSIZE": max_file_bytes} if max_file_bytes else {}),
        },
        "max_log_bytes": min(max_log_bytes, run.log_bytes or max_log_bytes),
        "environments": str(environments) if environments else None,
        "max_environment_bytes": max_environment_bytes,
        "max_disk_bytes": min(filter(None, (max_disk_bytes, run.disk_bytes)), default=0),
        "memory_limit": _memory_limit(run, memory_bytes),
        "devices": {name: list(units) for name, units in grant.units.items()},
        "power": {name: list(watts) for name, watts in grant.power.items()},
        "powercap": powercap,
        "metering": _metering(grant, identity if superuser else None, path),
    }


def _memory_limit(run: Run, memory_bytes: int) -> str:
    """For the message of a run that needed more."""
    limit = format_bytes(memory_bytes)
    if run.memory_bytes:
        return f"the {limit} that it asked for"
    return f"{limit}, the limit of a job that asks for none: set resources.memory (--memory)"


def _metering(grant: Grant, identity: AccountIdentity | None, path: str) -> dict[str, Any] | None:
    """What reads meters beside the run, as the job's own user."""
    if not grant.metering:
        return None
    units = {meters.units_variable(name): ",".join(given) for name, given in grant.units.items()}
    return {
        "script": meters.reporting(grant.metering),
        "sources": [(name, meter.source) for name, meter in grant.metering.meters],
        "env": {"PATH": path, "LANG": "C.UTF-8", **units, **grant.env},
        "identity": _numbers(identity) if identity else None,
    }


def _numbers(identity: AccountIdentity) -> dict[str, Any]:
    return {"uid": identity.uid, "gid": identity.gid, "groups": list(identity.groups)}


def homes(folder: RunFolder, sandbox: Sandbox | None) -> tuple[str, str]:
    """HOME and TMPDIR as the job sees them."""
    return (JOB_HOME, "/tmp") if sandbox else (str(folder.work), str(folder.tmp))  # noqa: S108
