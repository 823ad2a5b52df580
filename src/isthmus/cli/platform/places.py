"""Which store a person means by `--store`."""

from __future__ import annotations

import os
from pathlib import Path

from isthmus.kubernetes.kubeconfigs import in_cluster


def store_location(word: str) -> str:
    """The location of a store: `kubernetes` alone means the cluster we run in, else the one kubectl uses."""
    if word != "kubernetes":
        return word
    if (server := in_cluster(os.environ)) and not os.environ.get("KUBECONFIG"):
        return f"kubernetes:{server}"
    first = os.environ.get("KUBECONFIG", "").split(":")[0]
    return f"kubernetes:{first or Path.home() / '.kube' / 'config'}"
