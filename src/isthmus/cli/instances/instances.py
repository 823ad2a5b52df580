"""`isthmus ide` and `isthmus instance`: start an interactive program, stop it, share it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.durations import parse_duration
from isthmus._kit.ids import suffix
from isthmus.cli.app import group
from isthmus.cli.completion import complete_devices, complete_sites
from isthmus.cli.failures import say
from isthmus.cli.identity.roles import needs_member
from isthmus.cli.options import Format, Namespace, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import write
from isthmus.client.jobs import devices_of
from isthmus.client.requests import Object
from isthmus.client.sync import Client
from isthmus.errors import Conflict, Invalid, NotFound

KIND = "instances"
PATIENCE_SECONDS = 300.0
_OVER = ("Stopped", "Failed")
InstanceName = Annotated[str, typer.Argument(metavar="INSTANCE", help="Name of the instance.")]


def ide(
    template: Annotated[str, typer.Argument(metavar="TEMPLATE", help="Such as terminal, jupyterlab or vscode.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the instance.", show_default="drawn")] = None,
    cpus: Annotated[str | None, typer.Option("--cpus", "-c", help="CPUs.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", "-m", help="Memory.")] = None,
    device: Annotated[
        list[str] | None, typer.Option(metavar="CLASS[:N]", help="Boards.", autocompletion=complete_devices)
    ] = None,
    site: Annotated[list[str] | None, typer.Option(help="Where it may run.", autocompletion=complete_sites)] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait until it can be opened.")] = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Start an interactive program, and write its address once it can be opened.

    `isthmus templates` lists what there is. An instance that is there already is started again, and not made twice.

    \b
    Examples:
      isthmus ide terminal
      isthmus ide jupyterlab --name notes --cpus 4 --memory 8Gi
      isthmus ide vscode --device akida
    """
    asked: dict[str, Any] = {"cpus": cpus, "memory": memory, "devices": devices_of(device) if device else None}
    spec: Object = {"template": template}
    if resources := {key: value for key, value in asked.items() if value}:
        spec["resources"] = resources
    if site:
        spec["placement"] = {"sites": list(site)}
    with client_for(url, token, namespace) as client, needs_member(client, "starting an instance"):
        client.get("templates", template)  # a name that is wrong is explained
        wanted = name or f"{template}-{suffix(5)}"
        made = _made(client, wanted, spec, new=name is None)
        found = made if detach else _until_ready(client, wanted)
    form = format_of(output)
    if form in (Format.JSON, Format.YAML):
        write(found, form)
    elif form is Format.NAME or detach:
        typer.echo(f"instance/{wanted}" if form is Format.NAME else wanted)
    else:
        typer.echo(found["status"]["url"])
        say(f"instance {wanted}; stop it with isthmus instance stop {wanted}")


def _made(client: Client, name: str, spec: Object, *, new: bool) -> Object:
    """The instance, made or started again."""
    try:
        known = None if new else client.get(KIND, name)
    except NotFound:
        known = None
    if known is None:
        meta = {"name": name}
        return client.create({"apiVersion": "isthmus.dev/v1", "kind": "Instance", "metadata": meta, "spec": spec})
    if known["spec"].get("template") != spec["template"]:
        raise Conflict(f"instance {name} is one of {known['spec'].get('template')}; choose another name")
    return client.patch(KIND, name, {"spec": {"intent": "Run"}}) if known["spec"].get("intent") == "Stop" else known


def _until_ready(client: Client, name: str) -> Object:
    """The instance once it can be opened; raises Conflict when it will not be, or takes too long."""
    began, said = time.monotonic(), ""
    while True:
        found = client.get(KIND, name)
        status = found.get("status") or {}
        message = str(status.get("message") or "")
        waited = time.monotonic() - began
        if status.get("phase") == "Ready" and status.get("url"):
            return found
        if status.get("phase") in _OVER and found["spec"].get("intent") == "Stop":
            raise Conflict(f"instance {name} did not start: {message or status.get('phase')}")
        if waited > PATIENCE_SECONDS:
            raise Conflict(f"instance {name} cannot be opened yet: {message}; isthmus instances shows when it can")
        if message and message != said and waited > 3:
            said = message
            say(f"instance {name}: {message}")
        time.sleep(0.1)


app = group("An interactive program: start, stop, extend, share.")


@app.command()
def stop(name: InstanceName, namespace: Namespace = None, url: Url = None, token: Token = None) -> None:
    """Stop an instance; it can be started again.

    \b
    Example:
      isthmus instance stop jupyterlab
    """
    with client_for(url, token, namespace) as client:
        client.get(KIND, name)
        client.patch(KIND, name, {"spec": {"intent": "Stop"}})
    say(f"instance {name} is being stopped")


@app.command()
def start(name: InstanceName, namespace: Namespace = None, url: Url = None, token: Token = None) -> None:
    """Start an instance again, and write its address.

    \b
    Example:
      isthmus instance start jupyterlab
    """
    with client_for(url, token, namespace) as client:
        client.get(KIND, name)
        client.patch(KIND, name, {"spec": {"intent": "Run"}})
        found = _until_ready(client, name)
    typer.echo(found["status"]["url"])


@app.command()
def extend(
    name: InstanceName,
    more: Annotated[str, typer.Argument(metavar="DURATION", help="From now, such as 4h.")],
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Let an instance live so long from now.

    \b
    Example:
      isthmus instance extend jupyterlab 4h
    """
    try:
        wanted = parse_duration(more)
    except ValueError as error:
        raise Invalid(str(error)) from None
    with client_for(url, token, namespace) as client:
        started = (client.get(KIND, name).get("status") or {}).get("startedAt")
        if started is None:
            raise Conflict(f"instance {name} does not run; start it: isthmus instance start {name}")
        age = (utcnow() - parse_timestamp(str(started))).total_seconds()
        client.patch(KIND, name, {"spec": {"longestLife": f"{int(age + wanted) + 1}s"}})
    say(f"instance {name} lives for another {more}")


@app.command()
def share(
    name: InstanceName,
    user: Annotated[list[str], typer.Option("--with", metavar="USER", help="Who may use it.")],
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Let another user of the tenant use an instance.

    \b
    Example:
      isthmus instance share jupyterlab --with ada@example.org
    """
    _share(name, lambda known: [*dict.fromkeys([*known, *user])], url, token, namespace)


@app.command()
def unshare(
    name: InstanceName,
    user: Annotated[list[str], typer.Option("--with", metavar="USER", help="Who may no longer use it.")],
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Take that back; open pages end within seconds.

    \b
    Example:
      isthmus instance unshare jupyterlab --with ada@example.org
    """
    _share(name, lambda known: [one for one in known if one not in user], url, token, namespace)


def _share(
    name: str, change: Callable[[list[str]], list[str]], url: str | None, token: str | None, namespace: str | None
) -> None:
    with client_for(url, token, namespace) as client:
        users = change(client.get(KIND, name)["spec"].get("sharedWith") or [])
        client.patch(KIND, name, {"spec": {"sharedWith": users}})
    say(f"instance {name} is shared with {', '.join(users) or 'nobody'}")
