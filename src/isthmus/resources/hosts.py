"""Host: a machine with a BMC, which is switched on and off from outside, whatever runs on it.

What is wanted is its power; what is seen is its power, what it is made of, and what the BMC says of its health. A Host
says nothing of what runs on the machine: that is the Site's.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from .frame.declarations import AGE, Column, Kind, Navigation, Rights, at_any_time
from .frame.fields import ADMIN_ONLY, Duration
from .frame.meta import Condition, Model, Resource, Time
from .frame.states import HOST_PHASES, HOST_TRANSITIONS, HostPhase
from .sites import AbsolutePath

RedfishUrl = Annotated[
    str, StringConstraints(pattern=r"^https://[A-Za-z0-9.\[\]:-]{1,253}(:[0-9]{1,5})?/?$", max_length=300)
]
Fact = Annotated[str, StringConstraints(max_length=256)]


class HostPower(StrEnum):
    """Whether a machine has power."""

    ON = "On"
    OFF = "Off"
    POWERING_ON = "PoweringOn"
    POWERING_OFF = "PoweringOff"
    UNKNOWN = "Unknown"
    """The BMC answered, and what it said is none of the others."""


class Reset(StrEnum):
    """What a machine's power can be asked to do."""

    ON = "On"
    GRACEFUL_SHUTDOWN = "GracefulShutdown"
    """Asks the system to shut down; a machine whose system does not listen stays on."""
    FORCE_OFF = "ForceOff"


class RedfishHost(Model):
    """A machine whose BMC speaks Redfish."""

    url: RedfishUrl = Field(description="of the BMC, such as https://bmc-12.example.org; only HTTPS")
    system: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")] | None = Field(
        default=None, description="which machine, where the BMC manages several; its Id, UUID or name"
    )
    credentials_file: Annotated[AbsolutePath, ADMIN_ONLY] = Field(
        description="on the control plane, readable by its account only: one line, USER:PASSWORD"
    )
    certificate: str | None = Field(
        default=None,
        max_length=32_768,
        description="PEM: the BMC's own certificate, which it must then show, or the authority that signed it. "
        "None means an authority that the machine of the control plane trusts",
    )

    @field_validator("certificate")
    @classmethod
    def _pem(cls, text: str | None) -> str | None:
        if text is not None and "-----BEGIN CERTIFICATE-----" not in text:
            raise ValueError("must be a certificate in PEM (-----BEGIN CERTIFICATE-----); a private key is not needed")
        return text


class HostSpec(Model):
    """What is wanted."""

    redfish: RedfishHost
    power: Literal["On", "Off"] | None = Field(
        default=None, description="what its power shall be; none leaves it as it is"
    )
    force_after: Duration | None = Field(
        default=None,
        description="how long the system may take to shut down before the power is cut; none means it never is",
    )
    maintenance: bool = Field(default=False, description="somebody works on it: its power is not touched")
    probe_interval: Duration = Field(default="30s", description="how often it is looked at")
    description: str = Field(default="", max_length=1024)


class HostInventory(Model):
    """What a machine is made of, as its BMC says."""

    manufacturer: Fact = ""
    model: Fact = ""
    serial: Fact = ""
    uuid: Fact = ""
    bios: Fact = ""
    processors: int = Field(default=0, ge=0, le=100_000)
    cores: int = Field(default=0, ge=0, le=10_000_000)
    memory_bytes: int = Field(default=0, ge=0, le=1 << 60)


class PowerRequest(Model):
    """What the BMC was asked for last."""

    reset: Reset
    at: Time
    since: Time = Field(description="when this change of power was first asked for")


class HostStatus(Model):
    """What was seen."""

    phase: HostPhase = HostPhase.UNKNOWN
    message: str | None = Field(default=None, max_length=2048)
    power: HostPower = HostPower.UNKNOWN
    health: Fact | None = None
    inventory: HostInventory | None = None
    requested: PowerRequest | None = Field(default=None, description="what the BMC was asked for last")
    probed_at: Time | None = None
    conditions: list[Condition] = Field(default_factory=list)
    observed_generation: int | None = None


class Host(Resource):
    """A machine with a BMC."""

    kind: Literal["Host"] = "Host"
    spec: HostSpec
    status: HostStatus = Field(default_factory=HostStatus)


HOST = Kind(
    "Host",
    "hosts",
    Host,
    namespaced=False,
    short_names=("ihost",),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Power", ".status.power"),
        Column("Wanted", ".spec.power"),
        Column("Model", ".status.inventory.model"),
        Column("Cores", ".status.inventory.cores", "integer"),
        Column("Health", ".status.health"),
        AGE,
        Column("Message", ".status.message", priority=1),
        Column("Address", ".spec.redfish.url", priority=1),
    ),
    fields=("status.phase", "status.power"),
    description="A machine with a BMC, which is switched on and off from outside.",
    phases=HOST_PHASES,
    transitions=HOST_TRANSITIONS,
    changes=at_any_time("redfish", "power", "forceAfter", "maintenance", "probeInterval", "description"),
    rights=Rights(),
    navigation=Navigation("Hosts"),
)
