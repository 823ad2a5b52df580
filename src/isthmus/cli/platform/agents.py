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
INSTALLER = "/agents/install.py"


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
    installed: Annotated[
        bool,
        typer.Option("--installed", help="The machine has Isthmus already: print what joins, and installs nothing."),
    ] = False,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Invite a machine: prints the line that makes it a site, once. A machine that has joined is replaced by the next.

    Pasted on the machine, it installs the agent from this control plane, joins, and has it started with the machine.

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
    sys.stdout.write(said["join" if installed else "command"] + "\n")
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
    words = f"{where} {invitation} --authority {authority}"
    line = f"python3 -c '{_boot(client, where)}' {words}"
    said = {"site": name, "url": where, "invitation": invitation, "authority": authority, "expiresAt": until}
    return {**said, "command": line, "join": f"isthmus agent join {words} --run"}


def _boot(client: Client, where: str) -> str:
    """A program that fetches the installer, whoever sends it, and runs it if it is the one that is meant."""
    from isthmus.client.requests import Request

    digest = hashlib.sha256(client.read(Request("GET", INSTALLER, repeatable=True))).hexdigest()
    return (
        "import ssl,sys,hashlib,urllib.request as r;"
        f's=r.urlopen("{where}{INSTALLER}",context=ssl._create_unverified_context()).read();'
        f'hashlib.sha256(s).hexdigest()=="{digest}" or sys.exit("that is not the control plane of this invitation");'
        "exec(s)"
    )


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


@app.command("lost")
def lost(
    names: Annotated[list[str], typer.Argument(metavar="SITE…", autocompletion=complete_sites)],
    url: Url = None,
    token: Token = None,
) -> None:
    """Give machines up that are away: their jobs count as lost. If one is heard again, what became of them is recorded.

    \b
    Example:
      isthmus agents lost jetson-3
    """
    from isthmus.client.requests import Request

    with client_for(url, token) as client:
        connected = {one["name"] for one in client.ask(Request("GET", "/agents"))["items"] if one.get("connected")}
        for name in names:
            _agent(client, name)
            if name in connected:
                raise Conflict(f"the agent of {name} is connected; cancel its jobs, or cut it off with: agents revoke")
            client.patch("sites", name, {"spec": {"agent": {"lostAt": timestamp(utcnow())}}})
            sys.stdout.write(f"site/{name} lost\n")


@app.command("proposals")
def proposals(output: Output = None, url: Url = None, token: Token = None) -> None:
    """List boards that machines were found to have, and the device classes that could be made of them.

    \b
    Examples:
      isthmus agents proposals
      isthmus agents accept akida
    """
    with client_for(url, token) as client:
        known = {one["metadata"]["name"] for one in client.list("deviceclasses")}
        found = [
            {"site": site["metadata"]["name"], **one, "state": "Accepted" if one["name"] in known else "Proposed"}
            for site in client.list("sites")
            for one in ((site.get("status") or {}).get("agent") or {}).get("proposals") or ()
        ]
    form = format_of(output)
    if form in (Format.JSON, Format.YAML):
        write({"apiVersion": "isthmus.dev/v1", "kind": "ProposalList", "items": found}, form)
    elif form is Format.NAME:
        sys.stdout.writelines(f"deviceclass/{name}\n" for name in sorted({one["name"] for one in found}))
    else:
        show(found, _PROPOSALS, form)


@app.command("accept")
def accept(names: Annotated[list[str], typer.Argument(metavar="CLASS…")], url: Url = None, token: Token = None) -> None:
    """Make the device classes that were proposed: jobs can ask for them from then on. Change them as you like.

    \b
    Example:
      isthmus agents accept akida
    """
    from isthmus.engines.agent.boards import KINDS, manifest_of

    with client_for(url, token) as client:
        for name in names:
            if name not in KINDS:
                raise NotFound(f"no class {name!r} can be proposed; `isthmus agents proposals` lists what was found")
            client.create(manifest_of(name))
            sys.stdout.write(f"deviceclass/{name} created\n")


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
_PROPOSALS = (
    TableColumn("SITE", at("site")),
    TableColumn("CLASS", at("name")),
    TableColumn("COUNT", at("count")),
    TableColumn("STATE", at("state")),
    TableColumn("FOUND", at("found")),
)
