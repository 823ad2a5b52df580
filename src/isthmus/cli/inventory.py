"""`isthmus sites`, `isthmus site`, `isthmus devices`: what there is to run on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from isthmus.client.requests import Object
from isthmus.errors import Invalid

from .columns import columns_of
from .completion import complete_devices, complete_sites
from .failures import say
from .options import Format, Labels, Output, Token, Url, client_for, format_of
from .tables import show, show_facts, size, write


def sites(
    words: Annotated[list[str] | None, typer.Argument(metavar="[export] [SITE]", autocompletion=complete_sites)] = None,
    selector: Labels = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List the places that run work, and what they have.

    `export` writes them as GLUE 2 JSON.

    \b
    Examples:
      isthmus sites
      isthmus sites local -o yaml
      isthmus sites export > glue2.json
      isthmus sites export cluster
    """
    names = list(words or ())
    if names[:1] == ["export"]:
        _export(names[1:], selector, url, token)
        return
    if len(names) > 1:
        raise Invalid(f"one site at a time, or all of them; {len(names)} were named")
    name = names[0] if names else None
    _list("sites", "Site", name, selector, format_of(output), url, token)


def site(
    name: Annotated[str, typer.Argument(metavar="SITE", autocompletion=complete_sites)],
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show one site: what it has, and what it can do.

    \b
    Examples:
      isthmus site local
      isthmus site cluster -o yaml
    """
    form = format_of(output)
    with client_for(url, token) as client:
        found = client.get("sites", name)
    if form is not Format.TABLE:
        show([found], columns_of("Site"), form, single=True)
        return
    show_facts(_facts(found))


def _facts(found: Object) -> Iterator[tuple[str, str]]:
    status = found.get("status") or {}
    capacity = status.get("capacity") or {}
    devices = (f"{count} {kind}" for kind, count in (capacity.get("devices") or {}).items() if kind != "cpu")
    yield "Site", found["metadata"]["name"]
    yield "Phase", str(status.get("phase") or "Unknown")
    yield "Why", str(status.get("message") or "")
    yield "Driver", str((found.get("spec") or {}).get("driver") or "")
    yield "Version", str(status.get("version") or "")
    yield "Nodes", str(len(status.get("nodes") or ()))
    yield "CPUs", f"{capacity.get('cpus') or 0:g}"
    yield "Memory", size(capacity.get("memoryBytes") or 0)
    yield "Devices", ", ".join(devices)
    for feature, value in (status.get("features") or {}).items():
        yield feature.replace("-", " ").capitalize().replace("Cpu", "CPU"), str(value)


def devices(
    name: Annotated[str | None, typer.Argument(metavar="CLASS", autocompletion=complete_devices)] = None,
    selector: Labels = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List the kinds of boards and accelerators, how many there are, and where.

    \b
    Examples:
      isthmus devices
      isthmus devices akida -o yaml
    """
    _list("deviceclasses", "DeviceClass", name, selector, format_of(output), url, token)


def _export(names: list[str], selector: str | None, url: str | None, token: str | None) -> None:
    from isthmus.formats.glue2 import export

    with client_for(url, token) as client:
        found = [client.get("sites", name) for name in names] or client.list("sites", labels=selector)
    together: dict[str, list[object]] = {}
    for site in found:
        for kind, entities in export(site).items():
            together.setdefault(kind, []).extend(entities)
    write(together, Format.JSON)


def _list(
    plural: str, kind: str, name: str | None, selector: str | None, form: Format, url: str | None, token: str | None
) -> None:
    with client_for(url, token) as client:
        found = [client.get(plural, name)] if name else client.list(plural, labels=selector)
    if not found and form in (Format.TABLE, Format.WIDE):
        say(f"there are no {plural}")
        return
    show(found, columns_of(kind), form, single=name is not None)
