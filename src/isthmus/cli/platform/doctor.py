"""`isthmus doctor`: is everything there, and if not, what to do."""

from __future__ import annotations

import os
import sys

import typer

from isthmus.cli.failures import FAILED
from isthmus.cli.options import Format, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import PHASE_COLOURS, write


def doctor(output: Output = None, url: Url = None, token: Token = None) -> None:
    """Check this machine and the server, and say what to do.

    Each line says ok, warn or fail. Works without a server too. The exit code is 1 if anything fails.

    \b
    Examples:
      isthmus doctor
      isthmus doctor -o json
    """
    from .checks import machine_checks, server_checks

    found = machine_checks(os.environ)
    found += server_checks(lambda: client_for(url, token))
    form = format_of(output)
    if form in (Format.JSON, Format.YAML):
        write({"checks": [check._asdict() for check in found]}, form)
    else:
        for check in found:
            sys.stdout.write(f"{_mark(check.result)}  {check.name:<10} {check.message}\n")
            if check.remedy:
                sys.stdout.write(f"      {'':<10} {check.remedy}\n")
    if any(check.result == "fail" for check in found):
        raise typer.Exit(FAILED)


def _mark(result: str) -> str:
    word = f"{result:<4}"
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return word
    code = {"green": "32", "yellow": "33", "red": "31"}[PHASE_COLOURS[result]]
    return f"\x1b[{code}m{word}\x1b[0m"
