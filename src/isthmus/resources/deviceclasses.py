"""DeviceClass: a kind of board or accelerator, and how each driver asks for it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from .frame.declarations import AGE, PUBLIC, Column, Kind
from .frame.meta import Condition, Model, Resource
from .schemas.crd_rules import DEVICE_CLASS_RULES

LibraryPath = Annotated[str, StringConstraints(max_length=256, pattern=r"^/[-A-Za-z0-9/_.:,@+*?]+$")]


class PowerModel(Model):
    """Watts of one unit, for estimates where there is no meter."""

    idle_watts: float = Field(default=0, ge=0)
    busy_watts: float = Field(ge=0)


class Meter(Model):
    """What measures the energy of the class on the node that has it."""

    source: Literal["RAPL", "Hwmon", "NVML", "Command"] = Field(
        description="processors' own counters; sensors such as the Jetsons' INA3221; nvidia-smi; a command"
    )
    chip: str | None = Field(default=None, max_length=64, description="Hwmon: name of the chip, such as ina3221")
    label: str | None = Field(
        default=None, max_length=64, description="Hwmon: the channel that counts, such as VDD_IN; none means all"
    )
    command: list[str] = Field(
        default_factory=list,
        max_length=64,
        description="Command: writes a number; it finds the units in ISTHMUS_UNITS_…",
    )
    unit: Literal["Joules", "Watts"] = Field(
        default="Watts", description="Command: whether it writes joules so far or watts now"
    )

    @model_validator(mode="after")
    def _whole(self) -> Meter:
        if (self.source == "Command") != bool(self.command):
            raise ValueError("source Command needs command, the words of a program; other sources have none")
        if any("\0" in word or "\n" in word for word in (*self.command, self.chip or "", self.label or "")):
            raise ValueError("words must not contain line breaks or NUL characters")
        return self


class Use(Model):
    """What says how busy the class is on the node that has it."""

    source: Literal["NVML", "File", "Command"] = Field(
        description="nvidia-smi; a file such as the load of a Jetson's GPU; a command"
    )
    path: str | None = Field(
        default=None,
        max_length=256,
        pattern=r"^/[-A-Za-z0-9/_.:,@+*?]+$",
        description="File: a file or a pattern of files that hold a number, such as /sys/devices/gpu.0/load",
    )
    command: list[str] = Field(
        default_factory=list,
        max_length=64,
        description="Command: writes a number; it finds the units in ISTHMUS_UNITS_…",
    )
    full: float = Field(default=100, ge=0.001, le=1e9, description="the number that means busy all the time")

    @model_validator(mode="after")
    def _whole(self) -> Use:
        if (self.source == "Command") != bool(self.command) or (self.source == "File") != (self.path is not None):
            raise ValueError("source Command needs command, source File needs path; no source has more than its own")
        if any("\0" in word or "\n" in word for word in self.command):
            raise ValueError("words must not contain line breaks or NUL characters")
        return self


class LocalDevice(Model):
    """How the local driver finds and hands out units: device files, and variables that name the units."""

    paths: list[str] = Field(default_factory=list, description="patterns such as /dev/akida*; each match is a unit")
    share: list[str] = Field(default_factory=list, description="device files every user of the class needs")
    env: dict[str, str] = Field(
        default_factory=dict, description="variables to set; {units} becomes 0,1 and {paths} the device files"
    )

    @field_validator("paths", "share")
    @classmethod
    def _device_files(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.startswith("/dev/") or ".." in path.split("/"):
                raise ValueError(f"{path!r} must be below /dev")
        return paths


class SlurmDevice(Model):
    """How Slurm asks for it."""

    gres: str = Field(description="such as gpu:a100 or board:akida", max_length=256)


class KubernetesDevice(Model):
    """How Kubernetes asks for it."""

    resource: str | None = Field(default=None, description="extended resource, such as nvidia.com/gpu")
    node_labels: dict[str, str] = Field(default_factory=dict)


class DeviceClassSpec(Model):
    """What is wanted."""

    vendor: str = ""
    architecture: str = ""
    description: str = ""
    power: PowerModel | None = None
    price_per_hour: float | None = Field(
        default=None, ge=0, le=1_000_000, description="of one unit, where a site does not say"
    )
    meter: Meter | None = Field(
        default=None,
        description="measures energy and power at Slurm and local sites; the one of class cpu counts for every job",
    )
    use: Use | None = Field(
        default=None, description="reports how busy the devices are while a job runs; a meter NVML reports it too"
    )
    libraries: list[LibraryPath] = Field(
        default_factory=list,
        max_length=256,
        description="patterns of files of the node that programs in images need, such as "
        "/usr/lib/x86_64-linux-gnu/libcuda.so*; shown to jobs that have such a device, in front of the image's own",
    )
    local: LocalDevice | None = None
    slurm: SlurmDevice | None = None
    kubernetes: KubernetesDevice | None = None


class DeviceClassStatus(Model):
    """What was seen: how many there are at each site."""

    sites: dict[str, int] = Field(default_factory=dict)
    total: int = 0
    conditions: list[Condition] = Field(default_factory=list)


class DeviceClass(Resource):
    """A kind of board or accelerator."""

    kind: Literal["DeviceClass"] = "DeviceClass"
    spec: DeviceClassSpec = Field(default_factory=DeviceClassSpec)
    status: DeviceClassStatus = Field(default_factory=DeviceClassStatus)


DEVICE_CLASS = Kind(
    "DeviceClass",
    "deviceclasses",
    DeviceClass,
    namespaced=False,
    short_names=("idev",),
    columns=(
        Column("Vendor", ".spec.vendor"),
        Column("Architecture", ".spec.architecture"),
        Column("Total", ".status.total", "integer"),
        AGE,
    ),
    description="A kind of board or accelerator.",
    crd_rules=DEVICE_CLASS_RULES,
    rights=PUBLIC,
    listing="devices",
)
