"""Lines of shell that several drivers put before a run's program. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

# Some shells do not let these be assigned; `env` sets them.
_SHELL_OWN = frozenset({"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"})


def read_from(file: str, folder: str = "") -> str:
    """Open a file of the run, by its path below the folder, as standard input; say so where it is not there."""
    path, name = shlex.quote(folder + file), shlex.quote(file)
    missing = f'echo "isthmus: "{name}", which is to be its standard input, is not among its files" >&2'
    return f"[ -r {path} ] || {{ {missing}; exit 127; }}; exec <{path}"


def exports(env: Mapping[str, str]) -> list[str]:
    """Set the environment that the program finds, but for what `through_env` gives it."""
    return [f"export {name}={shlex.quote(value)}" for name, value in env.items() if name not in _SHELL_OWN]


def through_env(env: Mapping[str, str]) -> str:
    """What stands before the program where a variable can only be set by `env`; nothing where none is."""
    odd = [shlex.quote(f"{name}={value}") for name, value in env.items() if name in _SHELL_OWN]
    return f"/usr/bin/env {' '.join(odd)} " if odd else ""


def of_script(script: str, file: str) -> list[str]:
    """How a script begins that lies in a file. The interpreter that it names is called by us: the file need not be
    executable.
    """
    first = script.split("\n", 1)[0]
    words = first[2:].strip().split(None, 1) if first.startswith("#!") else []
    return [*(words or ["/bin/sh"]), file]


def cannot_run(word: str) -> str:
    """The condition that a program, as the shell writes it, is not there or not executable.

    Some shells find whatever is at a path, also if it cannot be run.
    """
    return (
        f"! {{ command -v -- {word} && case {word} in */*) [ -f {word} ] && [ -x {word} ] ;; esac; }} >/dev/null 2>&1"
    )
