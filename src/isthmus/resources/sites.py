"""Site: a place that runs work, through a driver. Its status is the inventory of what is there."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from .fields import Duration
from .meta import Condition, Model, Resource, ShortName, Time
from .states import SitePhase


class SiteDevice(Model):
    """Devices that an administrator declares, for drivers that cannot find them by themselves."""

    class_: ShortName = Field(alias="class")
    count: int = Field(default=1, ge=1, le=10_000)
    paths: list[str] = Field(default_factory=list, description="device files, one for each unit or all for all")

    @field_validator("paths")
    @classmethod
    def _device_files(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.startswith("/dev/") or ".." in path.split("/"):
                raise ValueError(f"{path!r} must be below /dev")
        return paths


class LocalSite(Model):
    """The machine that the control plane itself runs on."""

    root: str | None = Field(default=None, description="folder of the runs; none means below the data folder")
    host: str | None = Field(default=None, description="the machine it is; none means wherever first started")
    cpus: float | None = Field(default=None, gt=0, description="cpus to offer; none means all")
    memory: str | None = Field(default=None, description="memory to offer; none means nine tenths")
    isolation: Literal["Required", "Preferred", "None"] = Field(
        default="Preferred", description="whether jobs run in a sandbox (bubblewrap)"
    )
    visible: list[str] = Field(
        default_factory=list,
        max_length=64,
        description="folders that jobs may read besides the system's own, such as /data",
    )

    @field_validator("visible")
    @classmethod
    def _absolute(cls, folders: list[str]) -> list[str]:
        for folder in folders:
            if not folder.startswith("/") or folder == "/" or ".." in folder.split("/"):
                raise ValueError(f"{folder!r} must be the whole path of a folder, and not all of the machine")
        return folders


class SiteSpec(Model):
    """What is wanted."""

    driver: ShortName = Field(description="local; slurm and kubernetes join it")
    enabled: bool = Field(default=True, description="false: takes no new work")
    local: LocalSite | None = None
    devices: list[SiteDevice] = Field(default_factory=list, max_length=256)
    probe_interval: Duration = "30s"

    @model_validator(mode="before")
    @classmethod
    def _section(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("driver") == "local" and data.get("local") is None:
            return {**data, "local": {}}
        return data


class Capacity(Model):
    """Amounts: of a site, or of what is taken."""

    cpus: float = 0
    memory_bytes: int = 0
    devices: dict[str, int] = Field(default_factory=dict)


class SiteNode(Model):
    """One machine of a site."""

    name: str
    state: str = "Ready"
    cpus: float = 0
    memory_bytes: int = 0
    devices: dict[str, int] = Field(default_factory=dict)
    features: list[str] = Field(default_factory=list)


class SiteQueue(Model):
    """One queue (Slurm: partition) of a site, with its limits."""

    name: str
    state: str = "Up"
    default: bool = False
    max_time: str | None = None
    nodes: int = 0
    pending: int = 0
    running: int = 0


class SiteStatus(Model):
    """What was seen."""

    phase: SitePhase = SitePhase.UNKNOWN
    message: str | None = None
    version: str | None = Field(default=None, description="of the engine")
    capacity: Capacity | None = None
    nodes: list[SiteNode] = Field(default_factory=list)
    queues: list[SiteQueue] = Field(default_factory=list)
    features: dict[str, str] = Field(default_factory=dict, description="what the engine can do here, and how")
    probed_at: Time | None = None
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class Site(Resource):
    """A place that runs work."""

    kind: Literal["Site"] = "Site"
    spec: SiteSpec
    status: SiteStatus = Field(default_factory=SiteStatus)

    @property
    def attributes(self) -> dict[str, str]:
        """What placement expressions see: the labels, and `name` and `driver`."""
        return {**(self.metadata.labels or {}), "name": self.name, "driver": self.spec.driver}
