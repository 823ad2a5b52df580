"""Isthmus: one control plane for every machine an institute owns.

```python
from isthmus import Client

with Client() as client:
    job = client.run(["python", "train.py"], devices=["akida"], outputs=["out/*.csv"])
    job.wait()
    job.download("results")
```

`AsyncClient` offers the same with `await`. Everything here is imported when it is first used: `import isthmus`
itself costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import AsyncClient, AsyncJobHandle, Client, JobHandle
    from .errors import (
        AlreadyExists,
        Cause,
        Conflict,
        EngineRefused,
        Expired,
        Forbidden,
        HostRefused,
        HostUnavailable,
        Invalid,
        IsthmusError,
        JobFailed,
        Misconfigured,
        NotFound,
        PortClosed,
        SiteUnavailable,
        StoreUnavailable,
        Superseded,
        TooLarge,
        Unauthenticated,
        Unavailable,
        Unreachable,
    )

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "AsyncJobHandle",
    "Cause",
    "Client",
    "Conflict",
    "EngineRefused",
    "Expired",
    "Forbidden",
    "HostRefused",
    "HostUnavailable",
    "Invalid",
    "IsthmusError",
    "JobFailed",
    "JobHandle",
    "Misconfigured",
    "NotFound",
    "PortClosed",
    "SiteUnavailable",
    "StoreUnavailable",
    "Superseded",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "__version__",
]

_FROM_CLIENT = frozenset({"AsyncClient", "AsyncJobHandle", "Client", "JobHandle"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".client" if name in _FROM_CLIENT else ".errors", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
