"""What one try of a job used, and the record of a try that is over."""

from __future__ import annotations

from pydantic import Field

from isthmus.resources.frame.meta import Model, Time

from .plans import DeviceChosen


class Usage(Model):
    """What the run used. `energySource` says how the energy is known: rapl, hwmon, engine, or estimated."""

    elapsed_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    energy_joules: float | None = None
    energy_source: str | None = None


class Try(Model):
    """One try that is over."""

    attempt: int
    site: str | None = None
    engine_id: str | None = None
    started_at: Time | None = None
    finished_at: Time | None = None
    reason: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    chosen: DeviceChosen | None = None
    price_per_hour: float | None = Field(default=None, description="by the prices when it was placed")
    usage: Usage | None = None
