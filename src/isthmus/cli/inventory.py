"""`isthmus sites`, `isthmus devices`: what there is to run on."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.errors import Invalid

from .columns import columns_of
from .completion import complete_devices, complete_sites
from .failures import say
from .options import Format, Labels, Output, Token, Url, client_for, format_of
from .tables import show, write


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
