"""The network of a lab: a bridge on this machine, and machines with a network of their own that a cable joins to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from isthmus.errors import Misconfigured

from . import processes
from .layout import LabPlace

if TYPE_CHECKING:

    class LabNetwork(processes.LabRoot, Protocol):
        """A lab with a network."""

        @property
        def bridge(self) -> str:
            """The network interface that joins the machines."""
            ...

        def link(self, host: int) -> str:
            """This end of a machine's cable."""
            ...

        def address(self, host: int) -> str:
            """Host 1 is this machine."""
            ...


def make_bridge(place: LabNetwork) -> None:
    """What all cables of the lab end at."""
    call = processes.call
    call(place, "ip", "link", "add", place.bridge, "type", "bridge")
    call(place, "ip", "address", "add", f"{place.address(1)}/24", "dev", place.bridge)
    call(place, "ip", "link", "set", place.bridge, "up")


def make_machine(place: LabNetwork, name: str, host: int, net: Path, uts: Path) -> None:
    """Namespaces for a machine, kept by the two files, and its cable."""
    call = processes.call
    for file in (net, uts):
        file.touch()
    call(place, "unshare", f"--net={net}", f"--uts={uts}", "hostname", name)
    link = place.link(host)
    call(place, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(net))
    call(place, "ip", "link", "set", link, "master", place.bridge, "up")
    inside = ("nsenter", f"--net={net}", "ip")
    call(place, *inside, "link", "set", "lo", "up")
    call(place, *inside, "address", "add", f"{place.address(host)}/24", "dev", "eth0")
    call(place, *inside, "link", "set", "eth0", "up")


def remove_machine(place: LabNetwork, host: int, net: Path, uts: Path) -> None:
    """The cable and the namespaces, as far as they are there."""
    link = place.link(host)
    if Path(f"/sys/class/net/{link}").exists():
        processes.call(place, "ip", "link", "delete", link)
    for file in (net, uts):
        while os.path.ismount(file):
            processes.call(place, "umount", str(file))
        file.unlink(missing_ok=True)


def host_of(place: LabPlace, folder: Path) -> int:
    """The last number of a machine's address, drawn when it is first asked for, and kept in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "host"
    if not file.exists():
        taken = {int(other.read_text()) for other in place.root.glob("nodes/*/host")}
        free = next((host for host in range(2, 255) if host not in taken), None)
        if free is None:
            raise Misconfigured("The lab has no address left; 253 nodes are the most.")
        file.write_text(str(free))
    return int(file.read_text())
