"""The registry of `isthmus lab`: started, and trusted by the sites of the server that is known."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.cli.failures import say
from isthmus.cli.options import client_for
from isthmus.errors import Forbidden, Misconfigured, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from isthmus.client.sync import Client
    from isthmus.lab.registry.daemon import RegistryLab


def registry_in(data: Path) -> RegistryLab:
    """The registry of the lab in a folder, set up or not."""
    from isthmus.lab.registry.daemon import RegistryLab

    return RegistryLab(data / "registry")


def up_registry(data: Path, data_option: str, url: str | None, token: str | None) -> None:
    """Start it, have sites trust it, and say what to type next."""
    from isthmus.lab.registry.layout import USER

    lab = registry_in(data)
    begin = time.monotonic()
    lab.up()
    host, place = lab.place.host, lab.place
    say(f"the registry is up at {host} after {time.monotonic() - begin:.1f} s")
    known = _trust(place.authority.read_text(), url, token)
    sys.stdout.write(
        f"  account     {USER}, its password is in {place.password}\n"
        f"  trust       its certificates are signed by {place.authority}\n"
        f"  look        curl --cacert {place.authority} -u {USER}:$(cat {place.password}) https://{host}/v2/_catalog\n"
        f"  sign in     isthmus registry login {host} --user {USER} --password-stdin < {place.password}\n"
        + (f"  try         isthmus run --no-files --image {lab.image} -- uname -s\n" if known else "")
        + f"  stop        isthmus lab down{data_option}\n"
    )


def down_registry(lab: RegistryLab, *, erase: bool, url: str | None, token: str | None) -> None:
    """Stop it; erased, sites trust it no longer."""
    if erase and lab.place.authority.exists():
        _distrust(lab.place.authority.read_text(), url, token)
    lab.down(erase=erase)


def _trust(authority: str, url: str | None, token: str | None) -> bool:
    try:
        with client_for(url, token) as client:
            changed = [name for name, text in _authorities(client) if authority.strip() not in text]
            for name, text in _authorities(client):
                if name in changed:
                    _write(client, name, f"{text.strip()}\n{authority}".lstrip())
    except (Misconfigured, Unavailable, Forbidden, Unauthenticated) as error:
        say(f"no site trusts it yet: {error.message}")
        return False
    say(f"trusted by the sites {', '.join(changed)}" if changed else "trusted by all sites")
    return True


def _distrust(authority: str, url: str | None, token: str | None) -> None:
    try:
        with client_for(url, token) as client:
            for name, text in _authorities(client):
                if authority.strip() in text:
                    _write(client, name, text.replace(authority.strip(), "").strip())
    except (Misconfigured, Unavailable, Forbidden, Unauthenticated) as error:
        say(f"sites may still trust the registry: {error.message}")


def _authorities(client: Client) -> list[tuple[str, str]]:
    """Each site that fetches images itself, and what it trusts."""
    found = []
    for site in client.list("sites"):
        if site["spec"].get("driver") != "kubernetes":
            registries = site["spec"].get("registries") or {}
            found.append((str(site["metadata"]["name"]), str(registries.get("authorities") or "")))
    return found


def _write(client: Client, site: str, authorities: str) -> None:
    client.patch("sites", site, {"spec": {"registries": {"authorities": authorities or None}}})
