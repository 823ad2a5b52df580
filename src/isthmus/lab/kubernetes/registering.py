"""The lab as objects of the API: a site, and the class of its board. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .layout import BOARD, IMAGE
from .manifests import NAMESPACE

API_VERSION = "isthmus.dev/v1"


def manifests(
    kubeconfig: Path, name: str, *, image: str = IMAGE, namespace: str = NAMESPACE, lab: bool = True
) -> list[dict[str, Any]]:
    """What to apply, the class of the lab's board first."""
    spec = {"kubeconfig": str(kubeconfig), "namespace": namespace, "image": image}
    labels = {}
    if lab:
        spec |= {"helperImage": IMAGE, "pullPolicy": "IfNotPresent"}
        labels["isthmus.dev/lab"] = "true"
    site = {
        "apiVersion": API_VERSION,
        "kind": "Site",
        "metadata": {"name": name, "labels": labels},
        "spec": {"driver": "kubernetes", "kubernetes": spec},
    }
    return [_board(), site] if lab else [site]


def _board() -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": "akida"},
        "spec": {
            "vendor": "BrainChip",
            "architecture": "neuromorphic",
            "power": {"idleWatts": 0.1, "busyWatts": 1.0},
            "slurm": {"gres": "board:akida"},
            "kubernetes": {"resource": BOARD},
        },
    }
