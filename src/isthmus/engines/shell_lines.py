"""Lines of shell that several drivers put before a run's program. Pure."""

from __future__ import annotations

import shlex


def read_from(file: str, folder: str = "") -> str:
    """Open a file of the run, by its path below the folder, as standard input; say so where it is not there."""
    path, name = shlex.quote(folder + file), shlex.quote(file)
    missing = f'echo "isthmus: "{name}", which is to be its standard input, is not among its files" >&2'
    return f"[ -r {path} ] || {{ {missing}; exit 127; }}; exec <{path}"


def cannot_run(word: str) -> str:
    """The condition that a program, as the shell writes it, is not there or not executable.

    Some shells find whatever is at a path, also if it cannot be run.
    """
    return (
        f"! {{ command -v -- {word} && case {word} in */*) [ -f {word} ] && [ -x {word} ] ;; esac; }} >/dev/null 2>&1"
    )
