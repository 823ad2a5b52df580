"""`isthmus top JOB`: what a job uses while it runs, live."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from isthmus.client.requests import Object

from .failures import say
from .options import Format, JobName, Namespace, Output, Token, Url, client_for, format_of
from .sparklines import lines, merged
from .tables import one_line, write

EVERY = 1.0


def top(
    name: JobName,
    once: Annotated[bool, typer.Option("--once", help="Show what there is and leave.")] = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Watch what a job uses while it runs.

    Cpu, memory, power, its devices, and values that it reports.

    \b
    Examples:
      isthmus top train-x7k2p
      isthmus top train-x7k2p --once -o json
    """
    form = format_of(output)
    with client_for(url, token, namespace) as client:
        found: Object | None = None
        drawn = 0
        while True:
            cursor = str(found["cursor"]) if found else None
            found = merged(found, client.metrics(name, since=cursor))
            live = sys.stdout.isatty() and not once
            over = bool(found["over"])
            if form in (Format.JSON, Format.YAML):
                write(found, form)
                return
            if live or once or over:
                drawn = _draw(found, drawn if live else 0)
            if once or over:
                break
            if client.job(name).finished:
                once = True
                continue
            time.sleep(EVERY)
    if not found.get("series"):
        say(f"nothing was measured of {name}: it has not run, or for less than a second")


def _draw(found: Object, above: int) -> int:
    rows = [f"{title + ':':<12}{one_line(picture)}" for title, picture in lines(found)]
    if above:
        sys.stdout.write(f"\x1b[{above}A\x1b[J")
    sys.stdout.write("".join(row + "\n" for row in rows))
    sys.stdout.flush()
    return len(rows)
