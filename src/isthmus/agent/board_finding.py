"""Boards of this machine, as the kernel lists them: on PCI, on USB, and the module that the machine itself is."""

from __future__ import annotations

from pathlib import Path

from isthmus.engines.agent.boards import MOST_BOARDS, FoundBoard

_MODEL = "sys/firmware/devicetree/base/model"
_LONGEST = 200
_WANTED = ("03", "0b40", "12")
"""Classes on PCI: displays, co-processors, accelerators."""
_VENDORS = ("0x1e7c", "0x1e60", "0x1ac1")
"""Makers whose boards call themselves something else."""


def find_boards(root: Path = Path("/")) -> list[FoundBoard]:
    """All that could be of use to jobs; what cannot be read is left out."""
    found = []
    model = _read(root / _MODEL).rstrip("\0")
    if model:
        found.append(FoundBoard("module", "", model))
    for folder in _entries(root / "sys/bus/pci/devices"):
        kind, vendor = _read(folder / "class").removeprefix("0x"), _read(folder / "vendor")
        if kind.startswith(_WANTED) or vendor in _VENDORS:
            number = f"{vendor.removeprefix('0x')}:{_read(folder / 'device').removeprefix('0x')}"
            found.append(FoundBoard("pci", number, "", kind))
    for folder in _entries(root / "sys/bus/usb/devices"):
        vendor, product = _read(folder / "idVendor"), _read(folder / "idProduct")
        if vendor and product:
            found.append(FoundBoard("usb", f"{vendor}:{product}", _read(folder / "product")))
    return found[:MOST_BOARDS]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return content.read(_LONGEST).decode(errors="replace").strip()
    except OSError:
        return ""
