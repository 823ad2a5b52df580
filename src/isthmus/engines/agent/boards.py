"""Boards that machines are found to have, and the device classes that are proposed for them. Pure.

An agent says what hardware it sees: a bus, and the numbers that its makers gave it. Which device class that is, and
which device files jobs would be given, stands here: were it the agent's word, a machine could have an administrator
accept a class that opens a disk to jobs elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from isthmus.resources.sites import ProposedClass

MOST_BOARDS = 256
_BUSES = ("pci", "usb", "module")
_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_DISPLAY, _ACCELERATOR = "03", "12"


class FoundBoard(NamedTuple):
    """A board that a machine has."""

    bus: str
    id: str
    """On pci and usb `vendor:device`, each four hexadecimal digits; of a module empty."""
    name: str
    """As it calls itself; for a module the model of the machine."""
    kind: str = ""
    """On pci the class, six hexadecimal digits."""


class BoardKind(NamedTuple):
    """A class that can be proposed."""

    bus: str
    ids: tuple[str, ...]
    """How the number begins; for a module a word of the model."""
    spec: Mapping[str, Any]
    kinds: tuple[str, ...] = ("",)
    """How the class on pci begins."""


def _spec(vendor: str, architecture: str, description: str, *paths: str, **more: Any) -> dict[str, Any]:
    local = {"paths": list(paths), "share": list(more.pop("share", ()))}
    return {
        "vendor": vendor,
        "architecture": architecture,
        "description": description,
        **({"local": local} if paths else {}),
        **more,
    }


_TEGRA = ("/dev/nvmap", "/dev/nvhost-ctrl", "/dev/nvhost-ctrl-gpu", "/dev/nvhost-prof-gpu", "/dev/nvhost-as-gpu")
_JETSON: Mapping[str, Any] = {"share": _TEGRA, "meter": {"source": "Hwmon", "chip": "ina3221"}}
KINDS: Mapping[str, BoardKind] = {
    "nvidia-gpu": BoardKind(
        "pci", ("10de:",),
        _spec("NVIDIA", "gpu", "a GPU of NVIDIA", "/dev/nvidia[0-9]*",
              share=("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"), meter={"source": "NVML"}),
        (_DISPLAY,),
    ),
    "amd-gpu": BoardKind(
        "pci", ("1002:",), _spec("AMD", "gpu", "a GPU of AMD", "/dev/dri/renderD*", share=("/dev/kfd",)),
        (_DISPLAY, _ACCELERATOR),
    ),
    "akida": BoardKind("pci", ("1e7c:",), _spec("BrainChip", "neuromorphic", "a board with Akida", "/dev/akida*")),
    "hailo": BoardKind("pci", ("1e60:",), _spec("Hailo", "npu", "a Hailo accelerator", "/dev/hailo*")),
    "coral": BoardKind("pci", ("1ac1:089a",), _spec("Google", "tpu", "a Coral Edge TPU", "/dev/apex_*")),
    "coral-usb": BoardKind(
        "usb", ("1a6e:089a", "18d1:9302"),
        _spec("Google", "tpu", "a Coral stick; name its device file in agent.toml"),
    ),
    "myriad-x": BoardKind(
        "usb", ("03e7:2485", "03e7:f63b"),
        _spec("Intel", "vpu", "a Neural Compute Stick 2; name its device file in agent.toml"),
    ),
    "jetson-orin": BoardKind(
        "module", ("Orin",), _spec("NVIDIA", "gpu", "the GPU of a Jetson Orin", "/dev/nvhost-gpu", **_JETSON)
    ),
    "jetson-xavier": BoardKind(
        "module", ("Xavier",), _spec("NVIDIA", "gpu", "the GPU of a Jetson Xavier", "/dev/nvhost-gpu", **_JETSON)
    ),
    "jetson-nano": BoardKind(
        "module", ("Jetson Nano",), _spec("NVIDIA", "gpu", "the GPU of a Jetson Nano", "/dev/nvhost-gpu", **_JETSON)
    ),
}  # fmt: skip
"""By the name of the class."""


def parse_boards(said: object) -> list[FoundBoard]:
    """What an agent says, as far as it can be: bounded, and of the right form."""
    found = []
    for one in (said if isinstance(said, list) else [])[:MOST_BOARDS]:
        if not isinstance(one, list) or len(one) != 4 or not all(isinstance(part, str) for part in one):
            continue
        bus, number, name, kind = one
        if bus in _BUSES and (bus == "module" or _ID.fullmatch(number)):
            printable = "".join(c for c in name[:100] if c.isprintable())
            found.append(FoundBoard(bus, number if bus != "module" else "", printable, kind[:6]))
    return found


def propose(boards: Sequence[FoundBoard]) -> list[ProposedClass]:
    """The classes of what was found, each with how many there are."""
    proposed = []
    for name, kind in KINDS.items():
        matching = [board for board in boards if _is(board, kind)]
        if matching:
            first = matching[0]
            words = " ".join(filter(None, (first.bus, first.id, first.name)))
            proposed.append(ProposedClass(name=name, count=len(matching), found=words))
    return proposed


def _is(board: FoundBoard, kind: BoardKind) -> bool:
    if board.bus != kind.bus:
        return False
    if board.bus == "module":
        return "Jetson" in board.name and any(word in board.name for word in kind.ids)
    return board.id.startswith(kind.ids) and board.kind.startswith(kind.kinds)


def manifest_of(name: str) -> dict[str, Any]:
    """A device class that was proposed, as it is created; raises KeyError."""
    spec = dict(KINDS[name].spec)
    return {"apiVersion": "isthmus.dev/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
