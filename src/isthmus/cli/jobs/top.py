"""`isthmus top`: what jobs use while they run, live: one of them, or all."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.completion import complete_jobs
from isthmus.cli.failures import say
from isthmus.cli.options import Format, Namespace, Output, Token, Url, client_for, format_of, job_name
from isthmus.cli.tables import one_line, write
from isthmus.client.requests import Object
from isthmus.errors import IsthmusError

from .sparklines import lines, merged

if TYPE_CHECKING:
    from isthmus.client.sync import Client

EVERY = 1.0
MOST = 50
"""Jobs that are looked at together: each costs a request every second."""
_SHOWN = ("cpu", "memory", "power")
_QUIT = b"qQ\x03"


def top(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Name of the job; none: all that run.", autocompletion=complete_jobs),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what there is and leave.")] = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Watch what jobs use while they run: CPU, memory, power, devices, and values that they report.

    With the name of a job, all that is measured of it; without one, a line for each job that runs. q leaves.

    \b
    Examples:
      isthmus top
      isthmus top train-x7k2p
      isthmus top train-x7k2p --once -o json
    """
    form = format_of(output)
    with client_for(url, token, namespace) as client, _keys() as quits:
        if name is None:
            _all(client, form, once or not sys.stdout.isatty(), quits)
        else:
            _one(client, job_name(name), form, once, quits)


def _one(client: Client, name: str, form: Format, once: bool, quits: Quits) -> None:
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
            rows = [f"{title + ':':<12}{one_line(drawn)}" for title, drawn in lines(found)]
            drawn = _draw(rows, drawn if live else 0)
        if once or over:
            break
        if client.job(name).finished:
            once = True
            continue
        if quits.within(EVERY):
            return
    if not found.get("series"):
        say(f"nothing was measured of {name}: it has not run, or for less than a second")


def _all(client: Client, form: Format, once: bool, quits: Quits) -> None:
    drawn = 0
    while True:
        running = client.list("jobs", fields="status.phase=Running")
        measured = [(job, _metrics(client, job)) for job in running[:MOST]]
        if form in (Format.JSON, Format.YAML):
            write(
                [{"job": job["metadata"]["name"], "series": found.get("series") or []} for job, found in measured], form
            )
            return
        drawn = _draw(_table(measured, len(running)), 0 if once else drawn)
        if once or quits.within(EVERY):
            return


def _metrics(client: Client, job: Object) -> Object:
    try:
        return client.metrics(str(job["metadata"]["name"]), namespace=job["metadata"].get("namespace"))
    except IsthmusError:  # it ended meanwhile, or its site does not answer
        return {}


def _table(measured: list[tuple[Object, Object]], running: int) -> list[str]:
    """A line for each job. Pure."""
    if not measured:
        return ["no job is running"]
    rows = [f"{'JOB':<28}{'SITE':<14}{'USE'}"]
    for job, found in measured:
        used = [f"{title} {one_line(drawn)}" for title, drawn in lines(found) if title.lower().startswith(_SHOWN)]
        site = str((job.get("status") or {}).get("site") or "")
        rows.append(
            f"{one_line(str(job['metadata']['name']))[:27]:<28}{site[:13]:<14}{'   '.join(used) or 'not measured yet'}"
        )
    if running > len(measured):
        rows.append(f"and {running - len(measured)} more")
    return rows


def _draw(rows: list[str], above: int) -> int:
    if above:
        sys.stdout.write(f"\x1b[{above}A\x1b[J")
    sys.stdout.write("".join(row + "\n" for row in rows))
    sys.stdout.flush()
    return len(rows)


class Quits:
    """Waits, and says whether somebody pressed q meanwhile."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def within(self, seconds: float) -> bool:
        """Whether to leave."""
        waiting = [] if self._descriptor is None else [self._descriptor]
        ready, _, _ = select.select(waiting, [], [], seconds)
        if not ready or self._descriptor is None:
            return False
        pressed = os.read(self._descriptor, 64)
        if not pressed:  # the terminal is closed
            self._descriptor = None
        return any(key in _QUIT for key in pressed)


@contextmanager
def _keys() -> Iterator[Quits]:
    """Keys are read one by one, without Enter, where there is a terminal; it is as before afterwards."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield Quits(None)
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Quits(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
