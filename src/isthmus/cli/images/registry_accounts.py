"""`isthmus registry`: accounts of registries, with which images of jobs are fetched. Passwords are not shown again."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from isthmus.cli.app import group
from isthmus.cli.failures import say
from isthmus.cli.options import Namespace, Token, Url, client_for
from isthmus.errors import AlreadyExists, Invalid

app = group("Accounts of registries, for container images that are not public.")
_LONGEST = 8192
_HUB = frozenset({"index.docker.io", "registry-1.docker.io", "hub.docker.com"})
Host = Annotated[str, typer.Argument(metavar="HOST", help="The registry, such as ghcr.io or localhost:5000.")]
User = Annotated[str | None, typer.Option("--user", "-u", help="The account there.", show_default="asked for")]


@app.command("login")
def login(
    host: Host,
    user: User = None,
    password_stdin: Annotated[bool, typer.Option("--password-stdin", help="Read the password from stdin.")] = False,
    shared: Annotated[bool, typer.Option("--shared", help="For jobs of the whole tenant, not only yours.")] = False,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Keep an account of a registry: your jobs fetch images with it. It is encrypted, and cannot be shown again.

    Use an access token with the right to read, not your password, where the registry has such tokens.

    \b
    Examples:
      isthmus registry login ghcr.io --user ada
      isthmus registry login registry.example.org --user robot --shared --password-stdin < token.txt
    """
    registry = _registry(host)
    account = user or _asked("User: ", password_stdin)
    secret = _password(password_stdin)
    name = _name(registry, account, shared=shared)
    spec = {"registry": registry, "user": account, "password": secret, "shared": shared}
    manifest = {"apiVersion": "isthmus.dev/v1", "kind": "Secret", "metadata": {"name": name}, "spec": spec}
    with client_for(url, token, namespace) as client:
        try:
            client.create(manifest)
        except AlreadyExists:
            client.patch("secrets", name, {"spec": {"user": account, "password": secret}})
    whose = "jobs of the tenant" if shared else "your jobs"
    sys.stdout.write(f"secret/{name} kept: {whose} fetch images of {registry} as {account}\n")


@app.command("logout")
def logout(
    host: Host,
    user: User = None,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Forget accounts of a registry: all that you may remove, or the one that is named.

    \b
    Example:
      isthmus registry logout ghcr.io
    """
    registry = _registry(host)
    with client_for(url, token, namespace) as client:
        found = [
            str(secret["metadata"]["name"])
            for secret in client.list("secrets")
            if secret["spec"]["registry"] == registry and user in (None, secret["spec"]["user"])
        ]
        for name in found:
            client.delete("secrets", name)
            sys.stdout.write(f"secret/{name} removed\n")
    if not found:
        say(f"there is no account of {registry} to forget")


def _registry(host: str) -> str:
    bare = host.removeprefix("https://").rstrip("/")
    if "/" in bare or not bare:
        raise Invalid(f"{host[:100]!r} is not a registry; name its host, such as ghcr.io or localhost:5000")
    return "docker.io" if bare in _HUB else bare


def _name(registry: str, user: str, *, shared: bool) -> str:
    text = f"{registry}-{'shared' if shared else user}".lower()
    return re.sub(r"[^a-z0-9.]+|\.(?=[^a-z0-9])|(?<=[^a-z0-9])\.", "-", text).strip("-.")[:200].strip("-.")


def _asked(prompt: str, password_stdin: bool) -> str:
    if password_stdin or not sys.stdin.isatty():
        raise Invalid("which account? name it with --user")
    return input(prompt)


def _password(password_stdin: bool) -> str:
    if password_stdin or not sys.stdin.isatty():
        found = sys.stdin.read(_LONGEST + 2).rstrip("\r\n")
    else:
        from getpass import getpass

        found = getpass("Password or access token (not shown): ")
    if not found:
        raise Invalid("no password was given; write it to standard input with --password-stdin, or type it when asked")
    if len(found) > _LONGEST:
        raise Invalid(f"the password has more than {_LONGEST} characters; is it the right file?")
    return found
