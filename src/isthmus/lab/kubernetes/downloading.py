"""Fetches the official programs and holds them to the checksums that are published beside them."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from pathlib import Path

from isthmus.errors import Misconfigured
from isthmus.lab.fetching import Say

from .building import PROGRAMS

VERSION = "v1.20.15"
"""The last of the series that the lab is tried with."""
ADDRESS = "https://dl.k8s.io/release"
_PATIENCE = 5.0


def reachable(address: str = ADDRESS) -> bool:
    """Whether the official place answers at all."""
    try:
        with urllib.request.urlopen(f"{address}/{VERSION}/bin/linux/amd64/kubelet.sha256", timeout=_PATIENCE):  # noqa: S310 - https, and not a user's
            return True
    except OSError:
        return False


def download(folder: Path, say: Say, address: str = ADDRESS) -> None:
    """Fetch what is not yet in `folder`; raises Misconfigured if a checksum is not the published one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        if (folder / name).exists():
            continue
        say(f"downloading {name} {VERSION}")
        part = folder / f"{name}.part"
        source = f"{address}/{VERSION}/bin/linux/amd64/{name}"
        try:
            with urllib.request.urlopen(f"{source}.sha256", timeout=60) as answer:  # noqa: S310
                wanted = answer.read(64).decode("ascii", "replace")
            found = _copy(source, part)
        except OSError as error:
            raise Misconfigured(f"{source} could not be downloaded: {error}.") from error
        if found != wanted:
            part.unlink()
            raise Misconfigured(f"{source} has the checksum {found}, and {wanted} is published; it was not kept.")
        part.chmod(0o755)
        part.replace(folder / name)


def _copy(source: str, target: Path) -> str:
    digest = hashlib.sha256()
    with urllib.request.urlopen(source, timeout=60) as answer, target.open("wb") as file:  # noqa: S310
        while block := answer.read(1 << 20):
            digest.update(block)
            file.write(block)
    return digest.hexdigest()
