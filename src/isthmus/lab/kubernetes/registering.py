"""The lab as objects of the API: a site, and the class of its board. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .layout import BOARD, IMAGE
from .manifests import NAMESPACE

API_VERSION = "isthmus.dev/v1"


def manifests(kubeconfig: Path, name: str, *, image: str = IMAGE, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """What to apply, the class first."""
    return [
        {
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
        },
        {
            "apiVersion": API_VERSION,
            "kind": "Site",
            "metadata": {"name": name, "labels": {"isthmus.dev/lab": "true"}},
            "spec": {
                "driver": "kubernetes",
                "kubernetes": {
                    "kubeconfig": str(kubeconfig),
                    "namespace": namespace,
                    "image": image,
                    "helperImage": image,
                    "pullPolicy": "IfNotPresent",
                },
            },
        },
    ]
