"""`isthmus agents`: machines that joined by themselves."""

from __future__ import annotations

import hashlib
import secrets
import sys
from datetime import timedelta
from typing import Annotated, Any

import typer

from isthmus._kit.clock import parse_timestamp, timestamp, utcnow
from isthmus._kit.durations import parse_duration
from isthmus.cli.app import group
from isthmus.cli.completion import complete_sites
from isthmus.cli.failures import say
from isthmus.cli.options import Format, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import TableColumn, at, relative, show, write
from isthmus.client.requests import Object
from isthmus.client.sync import Client
from isthmus.errors import Conflict, Invalid, NotFound

app = group("Agents: machines that joined by themselves, over an outgoing connection.")
Site = Annotated[str, typer.Argument(metavar="SITE", autocompletion=complete_sites)]
_INVITATION = "isi_"


@app.callback(invoke_without_command=True)
def _default(ctx: typer.Context, output: Output = None, url: Url = None, token: Token = None) -> None:
    """Agents: machines that joined by themselves, over an outgoing connection.

    \b
    Examples:
      isthmus agents
      isthmus agents -o json
      isthmus agents invite --name jetson-3
    """
    if ctx.invoked_subcommand is None:
        list_agents(output, url, token)


def list_agents(output: Output = None, url: Url = None, token: Token = None) -> None:
    """List agents: version, address, last contact, round trip, and how far their clocks are off."""
    from isthmus.client.requests import Request

    with client_for(url, token) as client:
        found = client.ask(Request("GET", "/agents"))["items"]
    form = format_of(output)
    if form in (Format.JSON, Format.YAML):
        write({"apiVersion": "isthmus.dev/v1", "kind": "AgentList", "items": found}, form)
    elif form is Format.NAME:
        sys.stdout.writelines(f"site/{one['name']}\n" for one in found)
    else:
        show(found, _COLUMNS, form)
        for one in found:
            if refused := one.get("refused"):
                say(f"{one['name']}: {refused['address']} was refused at {refused['at']}: {refused['why']}")


@app.command("invite")
def invite(
    name: Annotated[str, typer.Option("--name", metavar="SITE", help="What the machine will be called, as a site.")],
    expires: Annotated[str, typer.Option(metavar="DURATION", help="How long it is good, such as 1h.")] = "1h",
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the machine reaches the control plane; the one you use.")
    ] = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Invite a machine: prints the line that makes it a site, once. A machine that has joined is replaced by the next.

    \b
    Examples:
      isthmus agents invite --name jetson-3
      isthmus agents invite --name jetson-3 --expires 24h --address https://isthmus.example.org:7070
    """
    seconds = _seconds(expires)
    with client_for(url, token) as client:
        said = new_invitation(client, name, seconds, address)
    if (form := format_of(output)) in (Format.JSON, Format.YAML):
        write(said, form)
        return
    sys.stdout.write(said["command"] + "\n")
    sys.stdout.flush()
    say(f"give this to the machine until {said['expiresAt']}; it works once, and cannot be shown again")


def new_invitation(
    client: Client, name: str, seconds: float, address: str | None = None, labels: dict[str, str] | None = None
) -> dict[str, str]:
    """Have a site that one machine may join, once; what the machine needs for it."""
    if address is not None and not address.startswith("https://"):
        raise Invalid(f"--address {address} must begin with https://; agents speak to nobody without TLS")
    secret = secrets.token_urlsafe(32)
    until = timestamp(utcnow() + timedelta(seconds=seconds))
    where = address or client.url.replace("http://", "https://")
    authority = hashlib.sha256(client.authority().strip()).hexdigest()
    _invite(client, name, {"sha256": hashlib.sha256(secret.encode()).hexdigest(), "expiresAt": until}, labels or {})
    invitation = f"{_INVITATION}{name}_{secret}"
    line = f"isthmus agent join {where} {invitation} --authority {authority} --run"
    said = {"site": name, "url": where, "invitation": invitation, "authority": authority, "expiresAt": until}
    return {**said, "command": line}


def _invite(client: Client, name: str, invited: dict[str, str], labels: dict[str, str]) -> None:
    site = {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Site",
        "metadata": {"name": name, "labels": labels},
        "spec": {"driver": "agent", "agent": {"invitation": invited}},
    }
    try:
        client.create(site)
    except Conflict:
        known = client.get("sites", name)
        if known["spec"].get("driver") != "agent":
            raise Invalid(f"site {name} is of driver {known['spec'].get('driver')}; choose another name") from None
        client.patch("sites", name, {"spec": {"agent": {"invitation": invited}}})


@app.command("revoke")
def revoke(
    names: Annotated[list[str], typer.Argument(metavar="SITE…", autocompletion=complete_sites)],
    url: Url = None,
    token: Token = None,
) -> None:
    """Cut agents off at once. What runs on their machines goes on; a new invitation lets a machine join again.

    \b
    Example:
      isthmus agents revoke jetson-3
    """
    with client_for(url, token) as client:
        for name in names:
            _agent(client, name)
            client.patch("sites", name, {"spec": {"agent": {"revoked": True, "invitation": None}}})
            sys.stdout.write(f"site/{name} revoked\n")


@app.command("remove")
def remove(
    names: Annotated[list[str], typer.Argument(metavar="SITE…", autocompletion=complete_sites)],
    url: Url = None,
    token: Token = None,
) -> None:
    """Remove the sites of agents; each goes when its jobs have ended.

    \b
    Example:
      isthmus agents remove jetson-3
    """
    with client_for(url, token) as client:
        for name in names:
            _agent(client, name)
            client.delete("sites", name)
            sys.stdout.write(f"site/{name} deleted\n")


def _agent(client: Any, name: str) -> None:
    if client.get("sites", name)["spec"].get("driver") != "agent":
        raise NotFound(f"site {name} has no agent; `isthmus agents` lists those that have")


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise Invalid(f"--expires {text!r} is not a duration such as 1h") from None
    if seconds <= 0:
        raise Invalid(f"--expires {text!r} leaves no time to join; say how long it is good, such as 1h")
    return seconds


def _heard(one: Object) -> str:
    if one.get("connected"):
        return "now"
    heard = one.get("lastContact")
    return f"{relative(parse_timestamp(heard), utcnow())} ago" if heard else "never"


def _number(field: str, factor: float, unit: str) -> Any:
    def shown(one: Object) -> str:
        value = one.get(field)
        return "" if value is None else f"{value * factor:.1f} {unit}"

    return shown


_COLUMNS = (
    TableColumn("NAME", at("name")),
    TableColumn("STATE", at("state")),
    TableColumn("VERSION", at("version")),
    TableColumn("ADDRESS", at("address")),
    TableColumn("LAST CONTACT", _heard),
    TableColumn("ROUND TRIP", _number("roundTripSeconds", 1000, "ms")),
    TableColumn("CLOCK", _number("clockOffsetSeconds", 1, "s")),
)
