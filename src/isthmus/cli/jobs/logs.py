"""`isthmus logs`: a job's output, now or live."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.failures import say, write_all
from isthmus.cli.options import JobName, Namespace, Token, Url, client_for
from isthmus.client.flows import ARRAY_LABEL, index_of
from isthmus.client.requests import Object
from isthmus.errors import Invalid

from .waiting import in_background, why_waiting

if TYPE_CHECKING:
    from isthmus.client.sync import Client

_STREAMS = ("stdout", "stderr")


def logs(
    name: JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    tail: Annotated[int | None, typer.Option(min=0, metavar="LINES", help="Begin with the last so many lines.")] = None,
    stream: Annotated[str | None, typer.Option(help="Only stdout or only stderr.", show_default="both")] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Which attempt, counted from 1.", show_default="the latest")
    ] = None,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show a job's output. What it wrote to standard error goes to standard error.

    Of a job that waits, standard error says why. Following survives lost connections and restarts of the server. Of
    an array, each element is shown in turn.

    \b
    Examples:
      isthmus logs train-x7k2p
      isthmus logs -f train-x7k2p
      isthmus logs --tail 20 --stream stderr train-x7k2p
    """
    if stream not in (None, *_STREAMS):
        raise Invalid(f"--stream {stream!r} is neither stdout nor stderr")
    with client_for(url, token, namespace) as client:
        job = client.job(name)
        if (job.object.get("spec") or {}).get("array"):
            _array(client, job.object, follow, tail, stream)
            return
        if not follow and (why := why_waiting(job.object)):
            say(why)
        latest = int((job.object.get("status") or {}).get("attempt") or 0) + 1
        if attempt is not None and attempt > latest:
            raise Invalid(f"job {name} has no attempt {attempt}; the latest is {latest}")
        number = None if attempt is None else attempt - 1  # the API counts from 0
        _show(client, name, _wanted(job.object, stream), follow=follow, tail=tail, attempt=number)


def _wanted(job: Object, stream: str | None) -> list[str]:
    """The streams to show: a job that keeps them in order has one."""
    separate = (job.get("spec") or {}).get("streams") == "Separate"
    return [stream] if stream else list(_STREAMS) if separate else ["stdout"]


def _array(client: Client, job: Object, follow: bool, tail: int | None, stream: str | None) -> None:
    if follow:
        raise Invalid(
            f"{job['metadata']['name']} is an array; follow one of its elements, such as its first: "
            f"isthmus logs -f {job['metadata']['name']}-0"
        )
    if why := why_waiting(job):
        say(why)
    elements = client.list("jobs", labels=f"{ARRAY_LABEL}={job['metadata']['name'][:63].rstrip('-.')}")
    for element in sorted(elements, key=index_of):
        name = str(element["metadata"]["name"])
        say(f"--- {name} ({(element.get('status') or {}).get('phase', 'Pending')})")
        _show(client, name, _wanted(element, stream), follow=False, tail=tail, attempt=None)


def _show(
    client: Client, name: str, streams: list[str], *, follow: bool, tail: int | None, attempt: int | None
) -> None:
    """Copy streams to where they belong: one after the other, or at once when following."""
    heard = threading.Event()
    if follow:
        in_background(client, client.namespace(), name, lambda: not heard.is_set())

    def copy(stream: str) -> None:
        for chunk in client.logs(name, follow=follow, stream=stream, tail=tail, attempt=attempt):
            heard.set()
            write_all(2 if stream == "stderr" else 1, chunk)

    if follow and len(streams) > 1:
        _at_once(copy, streams)
    else:
        for stream in streams:
            copy(stream)


def _at_once(copy: Callable[[str], None], streams: list[str]) -> None:
    """Until all have ended, or one fails: who has closed standard output does not wait for the end of the other."""
    ended: SimpleQueue[Exception | None] = SimpleQueue()

    def run(stream: str) -> None:
        try:
            copy(stream)
        except Exception as error:  # noqa: BLE001 - raised again in the main thread
            ended.put(error)
        else:
            ended.put(None)

    for stream in streams:
        threading.Thread(target=run, args=(stream,), daemon=True).start()
    for _ in streams:
        if (error := ended.get()) is not None:
            raise error
