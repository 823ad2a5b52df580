"""`isthmus audit`: who did what, and whether the log of it is whole.

The hashes are computed here, from the text of the logs, so that nobody need believe the server.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from isthmus._kit.clock import parse_timestamp, timestamp, utcnow
from isthmus._kit.durations import parse_duration
from isthmus.cli.app import group
from isthmus.cli.failures import say
from isthmus.cli.options import Format, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import table, write
from isthmus.client.requests import Request
from isthmus.errors import Invalid

if TYPE_CHECKING:
    from isthmus.client.sync import Client
    from isthmus.identity.audit.chaining import Head, Verifier

app = group("Who did what, from where, and whether it was allowed; for administrators.")
_PATH = "/apis/isthmus.dev/v1/audit"
_MOST = 10_000


def _only(name: str, what: str) -> Any:
    return typer.Option(f"--{name}", metavar=name.upper(), help=what)


@app.callback(invoke_without_command=True)
def audit(
    context: typer.Context,
    user: Annotated[str | None, _only("user", "Only what this person did.")] = None,
    verb: Annotated[str | None, _only("verb", "Only this: create, update, patch, delete, get, list, sign-in.")] = None,
    resource: Annotated[str | None, _only("resource", "Only what was done to these, such as jobs.")] = None,
    name: Annotated[str | None, _only("name", "Only what was done to the object of this name.")] = None,
    tenant: Annotated[str | None, _only("tenant", "Only in this tenant.")] = None,
    outcome: Annotated[str | None, _only("outcome", "Only allowed, refused or failed.")] = None,
    address: Annotated[str | None, _only("address", "Only from this address.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DURATION|TIME", help="Such as 2h, or a time.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DURATION|TIME", help="Such as 1h, or a time.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=_MOST, help="At most so many, the newest.")] = 200,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show who did what: all changes, all that was refused, and what administrators read of tenants.

    The oldest of those shown is first. What members read of their own tenant is not kept.

    \b
    Examples:
      isthmus audit --since 1h
      isthmus audit --user ada@example.org --outcome refused
      isthmus audit --resource jobs --name train -o json
      isthmus audit verify
    """
    if context.invoked_subcommand is not None:
        return
    asked = {"user": user, "verb": verb, "resource": resource, "name": name, "namespace": tenant, "outcome": outcome}
    asked |= {"address": address, "since": _moment(since, "--since"), "until": _moment(until, "--until")}
    query = (("limit", str(limit)), *((key, value) for key, value in asked.items() if value))
    form = format_of(output)
    with client_for(url, token, None) as client:
        found = client.ask(Request("GET", _PATH, query, repeatable=True))["items"]
    if form in (Format.JSON, Format.YAML):
        write({"apiVersion": "isthmus.dev/v1", "kind": "AuditList", "items": found}, form)
        return
    if not found:
        say("nothing was found")
        return
    table(["TIME", "USER", "FROM", "WITH", "OUTCOME", "ACT"], [_row(entry) for entry in found])


def _row(entry: dict[str, Any]) -> list[str]:
    where = "/".join(str(entry[key]) for key in ("namespace", "name") if entry.get(key))
    act = f"{entry.get('verb', '')} {entry.get('resource', '')} {where}".strip()
    if "event" in entry:
        act = {"repeated": f"{entry.get('times')} more like these"}.get(entry["event"], f"log {entry['event']}")
    outcome = f"{entry.get('outcome', '')} {entry.get('code', '')}".strip()
    shown = (entry.get(key, "") for key in ("time", "user", "address", "credential"))
    return [*(str(text) for text in shown), outcome, act]


@app.command("verify")
def verify(
    folder: Annotated[
        Path | None, typer.Option(help="A copy of the logs (a folder with one for each), in place of the server's.")
    ] = None,
    noted: Annotated[
        list[str] | None,
        typer.Option("--noted", metavar="LOG:ENTRIES:HASH", help="Where a log ended earlier, as this command said."),
    ] = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Check that no entry of the audit logs was changed, added or removed. The exit code is 1 if one was.

    Keep the last line somewhere else and hand it in the next time: then even somebody who writes a whole log anew is
    found out.

    \b
    Examples:
      isthmus audit verify
      isthmus audit verify --noted log-x1y2z3a4:1042:9f86d081…
      isthmus audit verify --folder ./copy-of-files/audit
    """
    heads = _heads(noted or [])
    if folder is not None:
        found = _verify_folder(folder, heads)
    else:
        with client_for(url, token, None) as client:
            found = _verify_server(client, heads)
    form = format_of(output)
    broken = any(verifier.problems for verifier in found.values())
    if form in (Format.JSON, Format.YAML):
        logs = [
            {"name": name, "entries": v.entries, "last": v.head.n, "hash": v.head.hash, "problems": v.problems}
            for name, v in found.items()
        ]
        write({"kind": "AuditVerification", "intact": not broken, "logs": logs}, form)
    else:
        for name, verifier in found.items():
            for problem in verifier.problems:
                say(f"{name}: {problem}", "31")
            verdict = "DAMAGED" if verifier.problems else "intact"
            sys.stdout.write(f"{verdict}: {verifier.entries} entries, {name}:{verifier.head.n}:{verifier.head.hash}\n")
    if broken:
        raise typer.Exit(1)


def _heads(noted: list[str]) -> dict[str, Head]:
    from isthmus.identity.audit.chaining import Head

    found = {}
    for text in noted:
        name, _, rest = text.partition(":")
        n, _, digest = rest.partition(":")
        if not name or not n.isdecimal() or len(digest) != 64:
            raise Invalid(f"--noted {text[:40]!r} is not of the form LOG:ENTRIES:HASH that `isthmus audit verify` says")
        found[name] = Head(int(n), digest)
    return found


def _verify_server(client: Client, noted: dict[str, Head]) -> dict[str, Verifier]:
    from isthmus.identity.audit.chaining import Head

    listed = client.ask(Request("GET", f"{_PATH}/logs", repeatable=True))["items"]
    known = {log["name"]: Head(log["entries"], log["hash"]) for log in listed if "hash" in log}
    names = sorted({*(log["name"] for log in listed), *noted})
    return {name: _verified(_server_lines(client, name), noted.get(name) or known.get(name)) for name in names}


def _verify_folder(folder: Path, noted: dict[str, Head]) -> dict[str, Verifier]:
    from isthmus.identity.audit.audit_log import files_of
    from isthmus.identity.audit.audit_reading import logs_in

    if not (names := sorted({*logs_in(folder), *noted})):
        raise Invalid(f"{folder} has no folder of an audit log; name the one that holds log-…")

    def pieces(name: str) -> Iterator[bytes]:
        for path in files_of(folder / name):
            with path.open("rb") as file:
                while piece := file.read(1 << 20):
                    yield piece

    return {name: _verified(pieces(name), noted.get(name)) for name in names}


def _server_lines(client: Client, name: str) -> Iterator[bytes]:
    from isthmus.errors import NotFound

    file = offset = 0
    while True:
        try:
            where = (("file", str(file)), ("offset", str(offset)))
            answer = client.ask(Request("GET", f"{_PATH}/logs/{quote(name, safe='')}", where, repeatable=True))
        except NotFound:  # the store remembers a log that is not there
            return
        if not answer["text"]:
            return
        yield answer["text"].encode()
        file, offset = answer["file"], answer["offset"]


def _verified(pieces: Iterator[bytes], noted: Head | None) -> Verifier:
    from isthmus.identity.audit.chaining import Verifier

    verifier, rest = Verifier(noted), b""
    for piece in pieces:
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        for line in lines:
            verifier.line(line)
    if rest:
        verifier.torn(len(rest))
    verifier.end()
    return verifier


def _moment(text: str | None, option: str) -> str:
    if not text:
        return ""
    try:
        return timestamp(utcnow() - timedelta(seconds=parse_duration(text)))
    except ValueError:
        pass
    try:
        return timestamp(parse_timestamp(text))
    except ValueError:
        raise Invalid(f"{option} {text!r} is neither a duration (2h) nor a time (2026-01-31T18:00:00Z)") from None
