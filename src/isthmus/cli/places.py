"""Which store a person means by `--store`."""

from __future__ import annotations

import os
from pathlib import Path


def store_location(word: str) -> str:
    """The location of a store: `kubernetes` alone means the cluster we run in, else the one kubectl uses."""
    if word != "kubernetes":
        return word
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if host and port and not os.environ.get("KUBECONFIG"):
        return f"kubernetes:https://{f'[{host}]' if ':' in host else host}:{port}"
    first = os.environ.get("KUBECONFIG", "").split(":")[0]
    return f"kubernetes:{first or Path.home() / '.kube' / 'config'}"
