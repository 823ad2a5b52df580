"""Times of the store's own metadata: whole seconds, as Kubernetes writes them."""

from __future__ import annotations

import time


def stamp(seconds: float) -> str:
    """Seconds since 1970 as `2026-01-01T00:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
