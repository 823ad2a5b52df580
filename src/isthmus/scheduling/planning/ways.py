"""Ways: how a job could be run, one for each site and choice of devices that suits it, with its price and power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.resources.jobs import JobSpec
from isthmus.resources.tenants import TenantSpec
from isthmus.resources.work.plans import DeviceChosen, ProfileSource
from isthmus.scheduling.demands import Demand, Room, demand_of
from isthmus.scheduling.placement import SiteView, unsuitable

from .estimates import Estimates
from .workloads import Key, choices_of, key_of

MOST_WAYS = 64
_REPORTED = 20


@dataclass(frozen=True, slots=True)
class Way:
    """A job at one site on certain devices. Seconds are those of the whole job."""

    site: str
    chosen: DeviceChosen | None
    key: Key
    demand: Demand
    seconds: float
    spread: float
    source: ProfileSource
    rate: float = 0.0
    watts: float | None = None

    @property
    def room(self) -> Room:
        """What it takes."""
        return self.demand.room

    @property
    def cautious(self) -> float:
        """Seconds, with the uncertain part."""
        return self.seconds * (1 + self.spread)


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways there are, and why there are no others."""

    found: tuple[Way, ...]
    left_out: tuple[str, ...] = ()
    demands: tuple[Demand, ...] = ()


def ways_of(
    tenant: str,
    spec: JobSpec,
    known: Estimates,
    sites: Sequence[SiteView],
    rights: TenantSpec | None,
) -> Ways:
    """Every way to run a job that some site could offer if it were idle."""
    found: list[Way] = []
    out: dict[str, None] = dict.fromkeys(known.remarks)
    demands = []
    for chosen in choices_of(spec):
        key = key_of(spec, chosen)
        demand = demand_of(tenant, spec, chosen)
        demands.append(demand)
        expected = known.by_key.get(key)
        for site in sites:
            if reason := unsuitable(demand, site, rights) or _too_large(demand, site):
                out[f"{site.name}: {reason}"] = None
            elif expected is not None:
                found.append(
                    Way(
                        site.name,
                        chosen,
                        key,
                        demand,
                        expected.seconds,
                        expected.spread,
                        expected.source,
                        site.tariff.rate(demand.room),
                        site.tariff.power(demand.room),
                    )
                )
    return Ways(tuple(found[:MOST_WAYS]), tuple(out)[:_REPORTED], tuple(demands))


def _too_large(demand: Demand, site: SiteView) -> str | None:
    if demand.nodes > 1:
        return None
    most = dict(site.largest)
    for name, count in demand.room.devices:
        if count > most.get(name, count):
            return f"none of its machines has {count} {name}, the most is {most[name]}"
    return None
