"""Demands: what jobs need, in a form in which equal jobs are equal.

Ten thousand jobs of one script have one demand. Whether it fits a site is decided once per demand and pass, not
once per job, which keeps a pass cheap when the queue is long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from isthmus.images.references import is_file, repository_of
from isthmus.resources.jobs import JobSpec
from isthmus.resources.work.expressions import Expression, parse_expression
from isthmus.resources.work.plans import DeviceChosen


@dataclass(frozen=True, slots=True)
class Room:
    """An amount of everything that is counted."""

    milli_cpus: int = 0
    memory: int = 0
    devices: tuple[tuple[str, int], ...] = ()

    def plus(self, other: Room, sign: int = 1) -> Room:
        """The sum, or with sign -1 the difference; may become negative."""
        devices = dict(self.devices)
        for name, count in other.devices:
            devices[name] = devices.get(name, 0) + sign * count
        return Room(
            self.milli_cpus + sign * other.milli_cpus,
            self.memory + sign * other.memory,
            tuple(sorted(devices.items())) if devices else (),
        )

    def lacks(self, wanted: Room) -> list[str]:
        """What is missing for `wanted` to fit: `cpus`, `memory`, or the name of a device class."""
        have = dict(self.devices)
        missing = ["cpus"] if wanted.milli_cpus > self.milli_cpus else []
        if wanted.memory > self.memory:
            missing.append("memory")
        missing += [name for name, count in wanted.devices if count > have.get(name, 0)]
        return missing

    def of(self, name: str) -> int:
        """The amount of `cpus` (in thousandths), `memory`, or a device class."""
        if name == "cpus":
            return self.milli_cpus
        return self.memory if name == "memory" else dict(self.devices).get(name, 0)


@dataclass(frozen=True, slots=True)
class Tariff:
    """What an hour costs at a site, and the watts of each class of device."""

    cpu: float = 0.0
    devices: Mapping[str, float] = field(default_factory=dict)
    watts: Mapping[str, float] = field(default_factory=dict)

    def rate(self, room: Room) -> float:
        """The price of a second."""
        hour = self.cpu * room.milli_cpus / 1000
        hour += sum(self.devices.get(name, 0.0) * count for name, count in room.devices)
        return hour / 3600

    def power(self, room: Room) -> float | None:
        """Watts, as far as the classes report; None if they say nothing."""
        parts = [self.watts[name] * count for name, count in room.devices if name in self.watts]
        if "cpu" in self.watts:
            parts.append(self.watts["cpu"] * room.milli_cpus / 1000)
        return sum(parts) if parts else None


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job needs of a site, and which sites it accepts."""

    tenant: str
    room: Room
    nodes: int = 1
    """At most: with one, all of it must fit one machine."""
    image: bool = False
    image_file: bool = False
    """The image is among the files sent along."""
    image_from: str = ""
    """Registry and repository of the image."""
    environment: bool = False
    """It wants an environment of Python packages."""
    drivers: tuple[str, ...] = ()
    """The only drivers that understand all of it; empty: every one does."""
    sites: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    expression: str | None = None


@lru_cache(maxsize=4096)
def parsed(expression: str) -> Expression:
    """The expression's tree, parsed once."""
    return parse_expression(expression)


def demand_of(tenant: str, spec: JobSpec, chosen: DeviceChosen | None = None) -> Demand:
    """The demand of a job, with what was chosen of its `anyOf`."""
    resources, placement, options = spec.resources, spec.placement, spec.engine_options
    devices = [(d.class_, resources.units(d)) for d in resources.devices]
    if chosen is not None:
        devices.append((chosen.class_, chosen.count * resources.tasks))
    return Demand(
        tenant=tenant,
        room=Room(
            resources.milli_cpus,
            resources.memory_bytes,
            tuple(sorted(devices)),
        ),
        nodes=max((most for section in options.values() if (most := section.most_nodes)), default=resources.nodes),
        image=spec.image is not None,
        environment=spec.python is not None,
        image_file=spec.image is not None and is_file(spec.image),
        image_from=repository_of(spec.image) if spec.image is not None else "",
        drivers=tuple(sorted(options)),
        sites=tuple(sorted(placement.sites)),
        labels=tuple(sorted(placement.labels.items())),
        expression=placement.expression,
    )
