"""The lab as objects of the API: a site, and the classes of its devices."""

from __future__ import annotations

from typing import Any

from .layout import SlurmLabPlace

API_VERSION = "isthmus.dev/v1"
ACCOUNT = "nobody"
"""Under whom jobs run in a lab: an account that every machine has and that owns nothing."""


def manifests(place: SlurmLabPlace, name: str) -> list[dict[str, Any]]:
    """What to apply, the classes first."""
    return [
        _device("akida", "BrainChip", "neuromorphic", "board:akida", busy=1.0),
        _device("a100", "NVIDIA", "gpu", "gpu:a100", busy=400.0),
        {
            "apiVersion": API_VERSION,
            "kind": "Site",
            "metadata": {"name": name, "labels": {"isthmus.dev/lab": "true"}},
            "spec": {
                "driver": "slurm",
                "slurm": {
                    "transport": "Auto",
                    "conf": str(place.conf),
                    **({"path": str(place.programs / "bin")} if place.settings().release else {}),
                    "rest": {"url": place.rest_url, "keyFile": str(place.jwt_key)},
                    "folder": str(place.shared / name),
                    "accounts": [{"tenant": "*", "user": ACCOUNT, "shared": True}],
                },
            },
        },
    ]


def _device(name: str, vendor: str, architecture: str, gres: str, *, busy: float) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {
            "vendor": vendor,
            "architecture": architecture,
            "power": {"idleWatts": busy / 10, "busyWatts": busy},
            "slurm": {"gres": gres},
            "kubernetes": {"resource": f"isthmus.dev/{name}"},
        },
    }
