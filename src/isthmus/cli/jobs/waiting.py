"""Why a job waits, in sentences, and a thread that says them while somebody looks on. Nothing heavy is imported."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from isthmus.cli.failures import say
from isthmus.client.places import JOBS
from isthmus.client.requests import Object
from isthmus.client.resuming import WatchCursor
from isthmus.client.sync import Client
from isthmus.errors import IsthmusError

ANY_SITE = "any"
"""What is said in place of a site's name to leave the choice to the platform."""
WAITING = ("Pending", "Placed", "Queued")
_MOMENT = 1.0
# A reason that is a whole statement of its own needs no "waits:" before it.
_STATEMENTS = ("waits ", "is ")


def why_waiting(job: Object) -> str:
    """`job X waits: …`; empty when it does not wait."""
    status = job.get("status") or {}
    phase, message = str(status.get("phase") or "Pending"), str(status.get("message") or "")
    if phase not in WAITING:
        return ""
    if not message:
        where = f" at {status['site']}" if status.get("site") else ""
        message = "waits to be placed" if phase == "Pending" else f"is {phase.lower()}{where}"
    from isthmus._kit.reasons import read_reasons  # most jobs do not wait

    message = read_reasons(message).headline
    link = "" if message.startswith(_STATEMENTS) else "waits: "
    return f"job {job['metadata']['name']} {link}{message}"


def report_why(client: Client, namespace: str, name: str, wanted: Callable[[], bool]) -> None:
    """If the job still waits after a moment, and as long as this is wanted, say why; each reason once."""
    time.sleep(_MOMENT)
    if not wanted():
        return
    said = ""
    cursor = WatchCursor(JOBS, namespace, None, f"metadata.name={name}")
    try:
        for event in client.read_watch(cursor):
            why = why_waiting(event.object)
            if why and why != said and wanted():
                say(why)
            said = why
    except IsthmusError as error:
        if wanted():
            say(f"cannot say why job {name} waits: {error.message}")


def where(job: Object) -> str:
    """`job X goes to Y: …`; empty as long as it has no site. With a deadline, the plan says why."""
    status = job.get("status") or {}
    if not status.get("site"):
        return ""
    why = status.get("siteMessage") or (status.get("plan") or {}).get("message")
    return f"job {job['metadata']['name']} goes to {status['site']}" + (f": {why}" if why else "")


def report_where(client: Client, namespace: str, name: str, reported: threading.Event) -> None:
    """Say which site was chosen, and why, as soon as it is; for those who leave the choice to the platform."""
    cursor = WatchCursor(JOBS, namespace, None, f"metadata.name={name}")
    try:
        for event in client.read_watch(cursor):
            if reported.is_set():
                return
            if found := where(event.object):
                reported.set()
                say(found)
                return
    except IsthmusError as error:
        say(f"cannot say where job {name} goes: {error.message}")


def in_background(client: Client, namespace: str, name: str, wanted: Callable[[], bool]) -> None:
    """The same in a thread that nobody waits for."""
    threading.Thread(target=report_why, args=(client, namespace, name, wanted), daemon=True).start()
