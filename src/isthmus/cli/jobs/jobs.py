"""`isthmus jobs`, `job`, `cancel`, `hold`, `release`: jobs after they were submitted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.columns import columns_of
from isthmus.cli.failures import say
from isthmus.cli.identity.roles import needs_member
from isthmus.cli.options import (
    Everywhere,
    Format,
    JobName,
    JobNames,
    Labels,
    Namespace,
    Output,
    Token,
    Url,
    client_for,
    format_of,
)
from isthmus.cli.tables import birth, show, write
from isthmus.client.requests import Object
from isthmus.errors import Conflict, Forbidden, Invalid, IsthmusError, NotFound, Unavailable

if TYPE_CHECKING:
    from isthmus.client.sync import Client

_PHASES = ("Pending", "Placed", "Queued", "Running", "Finishing", "Succeeded", "Failed", "Cancelled")
_NO_ELEMENTS = "!isthmus.dev/array,!isthmus.dev/experiment"
_OVER = {"succeeded": "succeeded", "failed": "failed", "cancelled": "been cancelled"}


def jobs(
    phase: Annotated[str | None, typer.Option(help="Only those in this phase, such as Running.")] = None,
    selector: Labels = None,
    limit: Annotated[int, typer.Option(min=0, help="Show only the newest so many; 0 shows all.")] = 50,
    elements: Annotated[
        bool, typer.Option("--elements", "-e", help="With elements of arrays, runs of experiments.")
    ] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Only those that you submitted.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with every change until Ctrl-C.")] = False,
    everywhere: Everywhere = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List your jobs, the newest last: what runs, what waits and why, how it ended.

    \b
    Examples:
      isthmus jobs
      isthmus jobs --phase Running
      isthmus jobs --mine
      isthmus jobs -o wide --limit 0
      isthmus jobs -e -l isthmus.dev/array=sweep
      isthmus jobs -w
    """
    wanted = _phase(phase)
    form = format_of(output)
    if not elements:
        selector = f"{selector},{_NO_ELEMENTS}" if selector else _NO_ELEMENTS
    fields = f"status.phase={wanted}" if wanted else None
    with client_for(url, token, namespace) as client:
        user = str(client.whoami().get("username")) if mine else None
        if watch:
            from .job_watching import watch_jobs

            watch_jobs(client, selector, fields, limit, everywhere, form, user)
            return
        found = client.list("jobs", labels=selector, fields=fields, everywhere=everywhere)
        if not found and not everywhere:
            check_tenant(client)
    found = [job for job in found if submitted_by(job, user)]
    found.sort(key=birth)
    shown = found[-limit:] if limit else found
    if not shown and form in (Format.TABLE, Format.WIDE):
        whose = " of yours" if mine else ""
        say(
            f"there are no jobs{whose}"
            + (f" in phase {wanted}" if wanted else "; start one with `isthmus run -- COMMAND`")
        )
        return
    show(shown, columns_of("Job", everywhere), form)
    if len(shown) < len(found) and form in (Format.TABLE, Format.WIDE):
        say(f"{len(found) - len(shown)} older jobs are not shown; --limit 0 shows all")


def submitted_by(job: Object, user: str | None) -> bool:
    """Whether a job is this user's; everybody's are, if none is named."""
    status = job.get("status") or {}
    return user is None or (status.get("submittedBy") or status.get("member")) == user


def check_tenant(client: Client) -> None:
    """Nothing was found: is it because there is no such tenant? Raises NotFound."""
    home = client.namespace()
    try:
        client.get("tenants", home)
    except NotFound:
        raise NotFound(f"there is no tenant {home!r}; `isthmus tenants` lists them") from None
    except Forbidden:  # whoever may not see tenants was let into this one, so it is there
        return


def _phase(text: str | None) -> str | None:
    if text is None:
        return None
    if text.capitalize() not in _PHASES:
        raise Invalid(f"{text!r} is not a phase; the phases are {', '.join(_PHASES)}")
    return text.capitalize()


def job(
    name: JobName,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended; the exit code is the job's.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open its page in the browser.")] = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show one job: phase, why it waits, times, usage, events, outputs.

    \b
    Examples:
      isthmus job train-x7k2p
      isthmus job train-x7k2p --wait -o json
    """
    form = format_of(output)
    with client_for(url, token, namespace) as client:
        found = client.wait(name) if wait else client.job(name)
        if open_:
            from isthmus.cli.platform.console import open_page

            open_page(client, f"/console/jobs/{found.namespace}/{found.name}")
            return
        if form in (Format.TABLE, Format.WIDE):
            from .job_pages import page

            measured = _metrics(client, found.object)
            events, outputs = _events(client, found.object), _outputs(client, found.object)
            sys.stdout.write(page(found.object, events, outputs, measured))
        else:
            show([found.object], columns_of("Job"), form, single=True)
        if wait:
            raise typer.Exit(found.exit_code or 0)


def _events(client: Client, found: Object) -> list[Object]:
    """What happened to this very job, not to an earlier one of its name."""
    meta = found["metadata"]
    events = client.events(meta["name"], namespace=meta.get("namespace"))
    return [event for event in events if (event.get("involvedObject") or {}).get("uid") in (None, "", meta.get("uid"))]


def _metrics(client: Client, found: Object) -> Object | None:
    """What was measured; nothing, if it has not run or its site does not answer just now."""
    if not (found.get("status") or {}).get("startedAt") or (found.get("spec") or {}).get("array"):
        return None
    try:
        return client.metrics(found["metadata"]["name"], namespace=found["metadata"].get("namespace"))
    except (NotFound, Unavailable):
        return None


def _outputs(client: Client, found: Object) -> list[Object]:
    if not (found.get("status") or {}).get("outputs"):
        return []
    try:
        return list(client.outputs(found["metadata"]["name"], namespace=found["metadata"].get("namespace"))["files"])
    except NotFound:
        return []


def cancel(
    names: JobNames,
    wait: Annotated[bool, typer.Option("--wait", help="Until they have ended.")] = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Cancel jobs: all their processes are ended. Of a job that is over, says so, and that is no failure.

    \b
    Examples:
      isthmus cancel train-x7k2p
      isthmus cancel --wait sweep-b4n5z
    """
    with client_for(url, token, namespace) as client:
        _each(client, names, "Cancel", "cancelled", format_of(output))
        if wait:
            for name in names:
                client.wait(name)


def hold(
    names: JobNames, namespace: Namespace = None, output: Output = None, url: Url = None, token: Token = None
) -> None:
    """Keep jobs that have not started from starting. It is an error (6) if one is over.

    \b
    Example:
      isthmus hold train-x7k2p
    """
    with client_for(url, token, namespace) as client:
        _each(client, names, "Hold", "held", format_of(output))


def release(
    names: JobNames, namespace: Namespace = None, output: Output = None, url: Url = None, token: Token = None
) -> None:
    """Let held jobs start. It is an error (6) if one is over.

    \b
    Example:
      isthmus release train-x7k2p
    """
    with client_for(url, token, namespace) as client:
        _each(client, names, "Run", "released", format_of(output))


def _each(client: Client, names: list[str], intent: str, reported: str, form: Format) -> None:
    """Send it to every job; what fails for one does not spare the others."""
    first: IsthmusError | None = None
    changed = []
    for name in names:
        try:
            present = client.get("jobs", name)
            over = str((present.get("status") or {}).get("phase")).lower()
            if over in _OVER and intent == "Cancel":
                changed.append(present)
                say(f"job/{name} has already {_OVER[over]} (nothing to cancel)")
                continue
            if over in _OVER:
                raise Conflict(f"job {name} has already {_OVER[over]} and cannot be {reported}")
            if intent == "Hold" and over in ("running", "finishing"):
                say(f"job {name} has started and goes on; it is held if it is to be tried again")
            with needs_member(client, "changing a job"):
                changed.append(client.patch("jobs", name, {"spec": {"intent": intent}}))
        except IsthmusError as error:
            if first is not None:
                say(first.message, "31")
            first = error
            continue
        if form not in (Format.JSON, Format.YAML):
            sys.stdout.write(f"job/{name} {reported}\n")
    if form in (Format.JSON, Format.YAML) and changed:
        write(changed[0] if len(names) == 1 else {"apiVersion": "v1", "kind": "List", "items": changed}, form)
    if first is not None:
        raise first
