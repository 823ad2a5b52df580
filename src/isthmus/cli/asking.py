"""Questions at a terminal. Where nobody can answer, nothing is asked: a script means what it says."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from isthmus.errors import IsthmusError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a tenant is deleted.")]


def confirm_tenant(name: str, yes: bool) -> None:
    """Before a tenant goes with everything it owns, let its name be typed; raises IsthmusError on anything else."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    sys.stderr.write(f"isthmus: tenant {name} goes with all its jobs, files and tokens. Type its name to go on: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise IsthmusError(f"tenant {name} was not deleted")
