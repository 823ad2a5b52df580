"""`isthmus top`: what jobs use while they run, live: one of them, or all."""

from __future__ import annotations

import os
import select
import shutil
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

from .sparklines import lines, merged, newest

if TYPE_CHECKING:
    from isthmus.client.sync import Client

EVERY = 1.0
MOST = 50
"""Jobs that are looked at together: each costs a request every second."""
_SHOWN = ("cpu", "memory", "power")
_QUIT = b"qQ\x03"
_SITE, _CELL, _WORDS = 12, 13, 50
"""Width of the column of sites, of a value and its gap, and of what stands behind a curve."""
_LEAST_CURVE, _MOST_CURVE = 8, 40


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
            _all(client, form, once or not _may_redraw(), quits)
        else:
            _one(client, job_name(name), form, once, quits)


def _one(client: Client, name: str, form: Format, once: bool, quits: Quits) -> None:
    found: Object | None = None
    drawn = 0
    while True:
        cursor = str(found["cursor"]) if found else None
        found = merged(found, client.metrics(name, since=cursor))
        live = _may_redraw() and not once
        over = bool(found["over"])
        if form in (Format.JSON, Format.YAML):
            write(found, form)
            return
        if live or once or over:
            room = max(_LEAST_CURVE, min(_MOST_CURVE, _columns() - 12 - _WORDS))
            rows = [f"{title + ':':<12}{one_line(drawn)}" for title, drawn in lines(found, room)]
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
        drawn = _draw(table(measured, len(running), _columns()), 0 if once else drawn)
        if once or quits.within(EVERY):
            return


def _metrics(client: Client, job: Object) -> Object:
    try:
        return client.metrics(str(job["metadata"]["name"]), namespace=job["metadata"].get("namespace"))
    except IsthmusError:  # it ended meanwhile, or its site does not answer
        return {}


def table(measured: list[tuple[Object, Object]], running: int, columns: int) -> list[str]:
    """A line for each job, none of them longer than the terminal is wide. Pure."""
    if not measured:
        return ["no job is running"]
    longest = max(len(one_line(str(job["metadata"]["name"]))) for job, _ in measured)
    name = min(longest, max(12, columns - _SITE - len(_SHOWN) * _CELL - 2)) + 2
    curve = max(0, min(_MOST_CURVE, (columns - name - _SITE) // len(_SHOWN) - _CELL))
    cell = _CELL + curve
    rows = [f"{'JOB':<{name}}{'SITE':<{_SITE}}" + "".join(f"{title.upper():<{cell}}" for title in _SHOWN)]
    for job, found in measured:
        site = one_line(str((job.get("status") or {}).get("site") or ""))
        row = f"{_cut(one_line(str(job['metadata']['name'])), name - 2):<{name}}{_cut(site, _SITE - 2):<{_SITE}}"
        used = newest(found, curve)
        cells = [" ".join(used.get(title, ())) for title in _SHOWN]
        rows.append(row + ("".join(f"{text:<{cell}}" for text in cells) if used else "not measured yet"))
    if running > len(measured):
        rows.append(f"and {running - len(measured)} more")
    return [row.rstrip()[:columns] for row in rows]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _columns() -> int:
    """How wide the terminal is; elsewhere as wide as most are."""
    return shutil.get_terminal_size((120, 24)).columns or 120


def _may_redraw() -> bool:
    """Whether what was written can be written anew: a terminal, and one that knows how."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


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
