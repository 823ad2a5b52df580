"""`isthmus token`: credentials. The secret is drawn here and shown once; the server only ever gets its hash."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import typer

from isthmus._kit.clock import timestamp, utcnow
from isthmus._kit.durations import parse_duration
from isthmus.cli.app import group
from isthmus.cli.columns import columns_of
from isthmus.cli.failures import say
from isthmus.cli.options import Format, Namespace, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import show, write
from isthmus.errors import Invalid

app = group("Tokens: what people and programs sign in with.")
_ROLES = ("viewer", "member", "admin")


@app.command("create")
def create_token(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who presents it.")],
    role: Annotated[
        str, typer.Option(help="viewer, member or admin; none takes what the memberships give.")
    ] = "member",
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION|TIME", help="Such as 90d.", show_default="90d")
    ] = "90d",
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    name: Annotated[str | None, typer.Option(help="Name of the token.", show_default="drawn")] = None,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Create a token. It is written once, to standard output, and cannot be shown again.

    \b
    Examples:
      isthmus token create ada@example.org > token.txt
      isthmus token create ci --role member --expires 30d -n physics
      isthmus token create ada@example.org --role none -n isthmus-system
    """
    from isthmus.resources.tokens import new_secret

    if role not in (*_ROLES, "none"):
        raise Invalid(f"--role {role!r} is not one of {', '.join(_ROLES)}, none")
    drawn, secret, digest = new_secret(name)
    spec: dict[str, object] = {"user": user, "sha256": digest}
    if role != "none":
        spec["role"] = role
    if expires and expires != "never":
        spec["expiresAt"] = _moment(expires)
    if description:
        spec["description"] = description
    manifest = {"apiVersion": "isthmus.dev/v1", "kind": "Token", "metadata": {"name": drawn}, "spec": spec}
    form = format_of(output)
    with client_for(url, token, namespace) as client:
        made = client.create(manifest)
        home = made["metadata"].get("namespace") or client.namespace()
    if form in (Format.JSON, Format.YAML):
        write({"token": secret, "name": drawn, "namespace": home, "expiresAt": spec.get("expiresAt")}, form)
        return
    sys.stdout.write(secret + "\n")
    sys.stdout.flush()
    until = f"until {spec['expiresAt']}" if "expiresAt" in spec else "until it is revoked"
    say(f"token {drawn} of {user} in {home}, {until}; keep it now, it cannot be shown again")


def _moment(text: str) -> str:
    try:
        return timestamp(utcnow() + timedelta(seconds=parse_duration(text)))
    except ValueError:
        from isthmus._kit.clock import parse_timestamp

        try:
            return timestamp(parse_timestamp(text))
        except ValueError:
            raise Invalid(
                f"--expires {text!r} is neither a duration such as 90d, a time such as 2027-01-31T18:00:00Z, nor never"
            ) from None


@app.command("list")
def list_tokens(namespace: Namespace = None, output: Output = None, url: Url = None, token: Token = None) -> None:
    """List tokens; never their secrets."""
    with client_for(url, token, namespace) as client:
        found = client.list("tokens")
    show(found, columns_of("Token"), format_of(output))


@app.command("revoke")
def revoke_token(
    names: Annotated[list[str], typer.Argument(metavar="NAME…")],
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Revoke tokens: they are refused from now on.

    \b
    Example:
      isthmus token revoke tx7k2pbcd
    """
    with client_for(url, token, namespace) as client:
        for name in names:
            client.patch("tokens", name, {"spec": {"revoked": True}})
            sys.stdout.write(f"token/{name} revoked\n")
