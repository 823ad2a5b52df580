"""`isthmus login --oidc`, `logout`, and the plug-in by which kubectl gets a token of the same sign-in."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.failures import say
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.client.kubeconfigs import Access
    from isthmus.client.oidc.provider_answers import DeviceCode
    from isthmus.client.oidc.sign_ins import SignIn


def sign_in(server: Access, issuer: str, *, browser: bool) -> tuple[Access, SignIn]:
    """Let a person confirm a code; the access that she has then, and what to keep of it.

    Before anything is kept, the server must have taken the token.
    """
    from isthmus.client.oidc.device_flow import ask_for_code, await_tokens, find_addresses
    from isthmus.client.oidc.provider_answers import choose, read_offers
    from isthmus.client.oidc.sign_ins import new_sign_in, revoke
    from isthmus.client.requests import Request
    from isthmus.client.sync import Client

    with Client.at(server) as client:
        offers = read_offers(client.ask(Request("GET", "/.well-known/isthmus/identity-providers", repeatable=True)))
    offer = choose(offers, issuer, server.url)
    addresses = find_addresses(offer)
    code = ask_for_code(offer, addresses)
    _show(code, browser)
    tokens = await_tokens(offer, addresses, code)
    kept = new_sign_in(offer, addresses, tokens, time.time())
    access = server._replace(token=tokens.id_token)
    try:
        with Client.at(access) as client:
            client.whoami()
    except IsthmusError:
        revoke(kept)
        raise
    return access, kept


def _show(code: DeviceCode, browser: bool) -> None:
    sys.stdout.write(f"open {code.link} and enter the code {code.shown}\n")
    if code.whole_link:
        sys.stdout.write(f"or open {code.whole_link}\n")
    sys.stdout.flush()
    if browser and _has_browser():
        import webbrowser

        webbrowser.open(code.whole_link or code.link)


def _has_browser() -> bool:
    """Whether a page would open in a window: a browser of the terminal would take it from us."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def logout(
    kubeconfig: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where the login was written.", show_default="~/.config/isthmus/kubeconfig"),
    ] = None,
    context: Annotated[str, typer.Option(help="Name of the context.")] = "isthmus",
) -> None:
    """Sign out: forget what `isthmus login` kept, and revoke a sign-in at its identity provider.

    A token of Isthmus goes on being good elsewhere until it ends or `isthmus token revoke` ends it.

    \b
    Example:
      isthmus logout
    """
    from isthmus.client.config import login_file
    from isthmus.client.kubeconfigs import remove_access
    from isthmus.client.oidc.sign_ins import forget, kept_sign_ins

    file = Path(kubeconfig) if kubeconfig else login_file(os.environ)
    kept = kept_sign_ins(file, context)
    for path in kept:
        if problem := forget(path):
            say(problem, "33")
    there = remove_access(file, context)
    sys.stdout.write("signed out\n" if there or kept else "you were not signed in\n")


def credential(
    sign_in_file: Annotated[str, typer.Argument(metavar="FILE", help="The sign-in, as the kubeconfig names it.")],
) -> None:
    """Write the present token of a sign-in, for kubectl. `isthmus login --oidc` names this in the kubeconfig.

    \b
    Example:
      isthmus credential ~/.config/isthmus/kubeconfig.isthmus@0a1b2c3d.signin
    """
    from datetime import UTC, datetime

    from isthmus._kit.clock import timestamp
    from isthmus.client.kubeconfigs import EXEC_API
    from isthmus.client.oidc.sign_ins import renewed

    kept = renewed(Path(sign_in_file))
    now = time.time()
    until = kept.renewed_from if kept.is_fresh(now) else min(kept.ends, now + 30)
    status = {"token": kept.id_token, "expirationTimestamp": timestamp(datetime.fromtimestamp(until, UTC))}
    sys.stdout.write(json.dumps({"apiVersion": EXEC_API, "kind": "ExecCredential", "status": status}) + "\n")
