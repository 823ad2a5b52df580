"""All parts of the control plane. A new kind adds one line: the `declare` function of its reconciler.

The order of the list is the order in which handlers hear of a change and parts begin, where the parts themselves say
nothing else (`before`, `after`).
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.runtime.declaring import PlanePart

from . import deviceclasses, recording, refusing, storage_measuring, sweeping, tenants, usage_keeping
from .experiments import reconciler as experiments
from .hosts import reconciler as hosts
from .instances import reconciler as instances
from .jobs import image_resolving as images
from .jobs import reconciler as jobs
from .placement import placing, profiling
from .shared import Shared
from .sites import exposing
from .sites import reconciler as sites

PARTS: tuple[Callable[[Shared], PlanePart], ...] = (
    recording.declare,
    refusing.declare,
    profiling.declare,
    usage_keeping.declare,
    sweeping.declare,
    storage_measuring.declare,
    placing.declare,
    tenants.declare,
    sites.declare,
    deviceclasses.declare,
    exposing.declare,
    images.declare,
    jobs.declare,
    experiments.declare,
    hosts.declare,
    instances.declare,
)
