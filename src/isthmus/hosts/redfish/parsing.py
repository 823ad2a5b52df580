"""What BMCs answer, read strictly. Pure. What is missing, odd or too long is left out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from isthmus.errors import HostRefused
from isthmus.hosts.base import HostSeen
from isthmus.resources.hosts import HostInventory, HostPower

MOST_SYSTEMS = 1000
_LONGEST = 256
_GIB = 1 << 30


def document(body: bytes) -> dict[str, Any]:
    """A JSON object; raises HostRefused."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise HostRefused("The BMC answered with something that is no JSON. Is this the address of a BMC?") from None
    if not isinstance(found, dict):
        raise HostRefused("The BMC answered with JSON that is no object. Is this the address of a BMC?")
    return found


def members(collection: Mapping[str, Any]) -> list[str]:
    """The addresses of what a collection holds, each a path on the same BMC."""
    return [path for entry in _list(collection, "Members")[:MOST_SYSTEMS] if (path := link(entry))]


def link(entry: Any) -> str:
    """The path that a reference names; empty if there is none, or it leads elsewhere."""
    path = entry.get("@odata.id") if isinstance(entry, dict) else None
    if not isinstance(path, str) or len(path) > 1024 or not path.startswith("/redfish/"):
        return ""
    return path if path.isascii() and path.isprintable() and not {"..", "?"} & set(path.split("/")) else ""


def named(system: Mapping[str, Any], wanted: str) -> bool:
    """Whether this is the machine that is meant."""
    return wanted in (_text(system, "Id"), _text(system, "UUID"), _text(system, "Name"))


def seen(system: Mapping[str, Any]) -> HostSeen:
    """One look at a machine."""
    processors, memory = _map(system, "ProcessorSummary"), _map(system, "MemorySummary")
    power = _text(system, "PowerState")
    return HostSeen(
        HostPower(power) if power in set(HostPower) else HostPower.UNKNOWN,
        _text(_map(system, "Status"), "Health"),
        HostInventory(
            manufacturer=_text(system, "Manufacturer"),
            model=_text(system, "Model"),
            serial=_text(system, "SerialNumber"),
            uuid=_text(system, "UUID"),
            bios=_text(system, "BiosVersion"),
            processors=_count(processors, "Count", 100_000),
            cores=_count(processors, "CoreCount", 10_000_000),
            memory_bytes=_count(memory, "TotalSystemMemoryGiB", 1 << 29, _GIB),
        ),
    )


def reset_target(system: Mapping[str, Any], path: str) -> str:
    """Where a change of power is asked for."""
    action = _map(_map(system, "Actions"), "#ComputerSystem.Reset")
    return link({"@odata.id": action.get("target")}) or f"{path.rstrip('/')}/Actions/ComputerSystem.Reset"


def complaint(body: bytes) -> str:
    """What a BMC says about a request that it refused, on one line; empty if it says nothing readable."""
    try:
        error = _map(document(body), "error")
    except HostRefused:
        return ""
    said = [_text(entry, "Message") for entry in _list(error, "@Message.ExtendedInfo")[:3] if isinstance(entry, dict)]
    return next(filter(None, said), _text(error, "message"))


def _map(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = found.get(key)
    return value if isinstance(value, dict) else {}


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    return value if isinstance(value, list) else []


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return "".join(_printable(value[:_LONGEST])).strip() if isinstance(value, str) else ""


def _printable(text: str) -> Iterator[str]:
    return (letter if letter.isprintable() else " " for letter in text)


def _count(found: Mapping[str, Any], key: str, most: int, times: int = 1) -> int:
    value = found.get(key)
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
    return int(value * times) if sound and value is not None else 0
