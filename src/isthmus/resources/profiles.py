"""Profile: how long past runs of one workload took, on which devices. Kept by the platform, for its tenant alone.

A workload is an image, a command or script with its arguments, and the files sent along; its digest names the
profile. Recent run times are kept for each (class, number of devices), the newest last.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .frame.declarations import Kind
from .frame.meta import Model, Resource, Time

RUNS_KEPT = 16
POINTS_KEPT = 32


class ProfilePoint(Model):
    """Runs on so many devices of one class. The class `cpus` counts cpus; one of several classes names them all."""

    class_: str = Field(alias="class")
    count: int
    seconds: list[float] = Field(default_factory=list)


class ProfileSpec(Model):
    """What was measured."""

    points: list[ProfilePoint] = Field(default_factory=list)
    runs: int = 0
    last_run: Time | None = None


class Profile(Resource):
    """How long past runs of a workload took."""

    kind: Literal["Profile"] = "Profile"
    spec: ProfileSpec = Field(default_factory=ProfileSpec)


PROFILE = Kind(
    "Profile",
    "profiles",
    Profile,
    namespaced=True,
    has_status=False,
    categories=(),
    served=False,
    description="How long past runs of a workload took.",
)
