"""`isthmus console`: the way into the web console."""

from __future__ import annotations

import sys
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.options import Token, Url, client_for

if TYPE_CHECKING:
    from isthmus.client.sync import Client


def console(
    url: Url = None,
    token: Token = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser.")] = False,
) -> None:
    """Print a link to the web console that signs you in. It works once, within ten minutes.

    \b
    Examples:
      isthmus console
      isthmus console --open
    """
    with client_for(url, token) as client:
        link = sign_in_link(client)
    sys.stdout.write(f"{link}\n")
    if open_ and not webbrowser.open(link):
        sys.stderr.write("isthmus: no browser was found on this machine; open the link in yours\n")


def open_page(client: Client, path: str) -> None:
    """Open one page of the console, and write its address; whoever is not signed in is asked to first."""
    link = browser_address(client.url) + path
    sys.stdout.write(f"{link}\n")
    if not webbrowser.open(link):
        sys.stderr.write("isthmus: no browser was found on this machine; open the link in yours\n")


def sign_in_link(client: Client) -> str:
    """A link that signs the client's owner in, at the address a browser trusts most easily."""
    from isthmus.client.requests import Request

    answer = client.ask(Request("POST", "/console/tickets", body=b"{}"))
    return browser_address(client.url) + str(answer["path"])


def browser_address(url: str) -> str:
    """On this machine plain HTTP: nobody can listen in, and no browser asks about the instance's own certificate."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    host = urlsplit(url).hostname or ""
    try:
        near = ip_address(host).is_loopback
    except ValueError:
        near = host == "localhost"
    return url.rstrip("/").replace("https://", "http://", 1) if near else url.rstrip("/")
