"""`isthmus host`: one machine, and its power."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from isthmus.client.requests import Object
from isthmus.errors import Invalid, IsthmusError

from .columns import columns_of
from .failures import say
from .options import Format, Output, Token, Url, client_for, format_of
from .tables import show, show_facts, size

_WORDS = {"on": "On", "off": "Off"}
_LOOK_SECONDS = 0.5


def host(
    name: Annotated[str, typer.Argument(metavar="HOST")],
    power: Annotated[
        str | None, typer.Option(metavar="on|off", help="Switch it on, or have its system shut down and switch it off.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="With --power: wait until it is so.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it is switched off.")] = False,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show one machine as its BMC describes it, or change its power.

    \b
    Examples:
      isthmus hosts
      isthmus host node-12
      isthmus host node-12 --power on --wait
      isthmus host node-12 -o yaml
    """
    form = format_of(output)
    if power is not None and power not in _WORDS:
        raise Invalid(f"--power {power}: say on or off")
    if wait and power is None:
        raise Invalid("--wait goes with --power on or --power off")
    with client_for(url, token) as client:
        if power is not None:
            if power == "off":
                _confirm(name, yes)
            client.patch("hosts", name, {"spec": {"power": _WORDS[power]}})
        found, said = client.get("hosts", name), ""
        while wait and (found.get("status") or {}).get("power") != _WORDS[power or ""]:
            if (present := _present(found)) != said:
                say(present)
            said = present
            time.sleep(_LOOK_SECONDS)
            found = client.get("hosts", name)
    if form is not Format.TABLE:
        show([found], columns_of("Host"), form, single=True)
        return
    show_facts(_facts(found))


def _confirm(name: str, yes: bool) -> None:
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    sys.stderr.write(f"isthmus: whatever runs on {name} ends when it is switched off. Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise IsthmusError(f"{name} was left as it is")


def _present(found: Object) -> str:
    """What is waited for."""
    status = found.get("status") or {}
    return ": ".join(filter(None, (str(status.get("phase") or "Unknown"), status.get("message"))))


def _facts(found: Object) -> Iterator[tuple[str, str]]:
    spec, status = found.get("spec") or {}, found.get("status") or {}
    inventory = status.get("inventory") or {}
    yield "Host", found["metadata"]["name"]
    yield "Phase", str(status.get("phase") or "Unknown")
    yield "Why", str(status.get("message") or "")
    yield "Power", str(status.get("power") or "Unknown")
    yield "Wanted", str(spec.get("power") or "as it is")
    yield "Health", str(status.get("health") or "")
    yield "Model", " ".join(filter(None, (inventory.get("manufacturer"), inventory.get("model"))))
    yield "Serial", str(inventory.get("serial") or "")
    yield "BIOS", str(inventory.get("bios") or "")
    yield "Processors", str(inventory.get("processors") or "")
    yield "Cores", str(inventory.get("cores") or "")
    yield "Memory", size(inventory["memoryBytes"]) if inventory.get("memoryBytes") else ""
    yield "Address", str((spec.get("redfish") or {}).get("url") or "")
    yield "Looked at", str(status.get("probedAt") or "")
