"""Placement: waiting jobs in their order (`shares`), each to the cheapest site that satisfies it and has room.

Who does not fit now keeps what it waits for from being taken by those behind it, so that a large job is not
passed for ever by small ones. A job that waits only for a device leaves the cpus to others meanwhile.

When nobody can place a job, the verdict says which condition failed at which site. Where there was a choice, the
assignment says why it fell on that site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from isthmus._kit.quantities import format_bytes, format_cpus, format_unequal_bytes
from isthmus._kit.reasons import NO_SITE, Closeness, Hindrance, no_site
from isthmus.images.references import is_allowed
from isthmus.resources.tenants import STORAGE_USED, Quota, TenantSpec
from isthmus.resources.work.expressions import explain, matches

from .demands import Demand, Room, Tariff, parsed
from .ledger import Ledger
from .shares import Turns, sum_of

MOST_TOLD = 4
"""Sites that are named when it is reported why a job went to another."""


@dataclass(frozen=True, slots=True)
class SiteView:
    """A site, as placement sees it."""

    name: str
    attributes: Mapping[str, str]
    capacity: Room
    closed: str | None = None
    """Why it takes no work now; None if it does."""
    queues: bool = False
    """Keeps its own queue: work may be sent beyond the room it has."""
    multi_node: bool = False
    images: bool = False
    image_files: bool = False
    """Whether it runs images that are sent along as files."""
    environments: bool = False
    """Whether it makes environments of Python packages."""
    registries: tuple[str, ...] = ()
    """The only registries, or parts of them, that images may come from; empty: all."""
    largest: tuple[tuple[str, int], ...] = ()
    """The most devices of each class that one machine has, where it is known."""
    machine: Room | None = None
    """The most cpus and memory that one machine has, where it is known."""
    others: Room = field(default_factory=Room)
    """What is taken by work that is not ours, as far as the engine reports."""
    default_image: bool = True
    """Whether a job may do without naming an image."""
    tariff: Tariff = field(default_factory=Tariff)


@dataclass(frozen=True, slots=True)
class Assignment:
    """This job goes to that site."""

    uid: str
    site: str
    why: str | None = None
    """Why there and nowhere else; None if there was no choice."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why the jobs of a demand wait."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, and why the others wait."""

    assignments: list[Assignment] = field(default_factory=list)
    verdicts: dict[Demand, Verdict] = field(default_factory=dict)


def plan(
    ledger: Ledger,
    sites: Sequence[SiteView],
    tenants: Mapping[str, TenantSpec],
    *,
    limit: int = 1000,
    held: Mapping[str, Room] | None = None,
    budgets: Budgets | None = None,
) -> Plan:
    """Place as many waiting jobs as fit, at most `limit`. What is held at a site is not given to anybody."""
    result = Plan()
    free = {site.name: site.capacity.plus(site.others, -1).plus(ledger.taken(site.name), -1) for site in sites}
    for name, room in (held or {}).items():
        if name in free:
            free[name] = free[name].plus(room, -1)
    budget = budgets or Budgets(ledger, tenants)
    turns = Turns(ledger, sum_of(site.capacity for site in sites))
    at: dict[Demand, int] = {}
    hindered: dict[Demand, dict[str, str | None]] = {}
    suitable: dict[Demand, list[SiteView]] = {}
    while turns and len(result.assignments) < limit:
        order, _, demand = turns.next()
        if demand not in suitable:
            tenant = tenants.get(demand.tenant)
            why_not = hindered[demand] = {site.name: unsuitable(demand, site, tenant) for site in sites}
            suitable[demand] = [site for site in sites if why_not[site.name] is None]
        site = _choose(demand, suitable[demand], free)
        over = budget.exceeded(demand)
        if site is None or over:
            turns.drop()
            result.verdicts[demand] = why_waiting(demand, suitable[demand], sites, tenants.get(demand.tenant), over)
            if not over:
                _reserve(demand, suitable[demand], free)
            continue
        why = why_there(demand, site, sites, hindered[demand], free)
        result.assignments.append(Assignment(order[1], site.name, why))
        free[site.name] = free[site.name].plus(demand.room, -1)
        budget.take(demand)
        at[demand] = at.get(demand, 0) + 1
        queue = ledger.queues[demand]
        turns.assigned(queue[at[demand]] if at[demand] < len(queue) else None)
    return result


def unsuitable(demand: Demand, site: SiteView, tenant: TenantSpec | None) -> str | None:
    """Why the site can never take the demand as things are; None if it can."""
    found = hindrance(demand, site, tenant)
    return found.why if found else None


def hindrance(demand: Demand, site: SiteView, tenant: TenantSpec | None) -> Hindrance | None:
    """What hinders the site from taking the demand, and how near it comes; None if it can.

    What the job or its tenant excludes is said first: that such a site is also away matters to nobody.
    """
    if why := _excluded(demand, site, tenant):
        return Hindrance(site.name, why, Closeness.EXCLUDED)
    unlike = _unlike(demand, site)
    why = unlike or _unable(demand, site)
    if site.closed:
        return Hindrance(site.name, site.closed, Closeness.CLOSED if why else Closeness.AWAY)
    return Hindrance(site.name, why, Closeness.UNLIKE if unlike else Closeness.UNABLE) if why else None


def _excluded(demand: Demand, site: SiteView, tenant: TenantSpec | None) -> str | None:
    """What the tenant may not have, and the sites that the job does not name."""
    if tenant and tenant.suspended:
        return "this tenant is suspended"
    if tenant and tenant.sites and site.name not in tenant.sites:
        return "this tenant may not use it"
    if tenant and tenant.devices and (barred := [n for n, _ in demand.room.devices if n not in tenant.devices]):
        return f"this tenant may not use {', '.join(barred)}"
    if demand.sites and site.name not in demand.sites:
        return f"not among the sites asked for ({', '.join(demand.sites)})"
    return None


def _unlike(demand: Demand, site: SiteView) -> str | None:
    """Which label or driver is not what the job asks for."""
    for key, value in demand.labels:
        if site.attributes.get(key) != value:
            seen = f"its {key} is {site.attributes[key]}" if key in site.attributes else f"it has no label {key}"
            return f"{seen}, wanted {value}"
    if demand.expression and not matches(tree := parsed(demand.expression), site.attributes):
        return explain(tree, site.attributes)
    if demand.drivers and site.attributes.get("driver") not in demand.drivers:
        asked = " or ".join(demand.drivers)
        return f"the job has options for {asked}, and its driver is {site.attributes.get('driver')}"
    return None


def _unable(demand: Demand, site: SiteView) -> str | None:
    """What it does not have."""
    room = demand.room
    if demand.image and not site.images:
        return "it does not run container images"
    if demand.image_file and not site.image_files:
        return "it runs images of registries only, and the job's image is a file"
    if demand.environment and not site.environments:
        return "it makes no environments of Python packages"
    if demand.image_from and not is_allowed(demand.image_from, site.registries):
        return f"it takes no images of {demand.image_from}, only of {', '.join(site.registries[:5])}"
    if not demand.image and not site.default_image:
        return "it has no default image, and the job names none"
    if demand.nodes > 1 and not site.multi_node:
        return f"it is one machine, the job asks for {demand.nodes} nodes"
    if lacking := site.capacity.lacks(demand.room):
        return ", and ".join(_too_small(name, demand.room, site.capacity) for name in lacking)
    if demand.nodes == 1 and site.machine and (lacking := site.machine.lacks(Room(room.milli_cpus, room.memory))):
        return ", and ".join(_too_small(name, room, site.machine, "its largest node") for name in lacking)
    return None


def _too_small(name: str, wanted: Room, there: Room, whose: str = "it") -> str:
    if name == "cpus":
        have = format_cpus(there.milli_cpus)
        return f"{whose} has {have} CPU{'' if have == '1' else 's'}, the job asks for {format_cpus(wanted.milli_cpus)}"
    if name == "memory":
        have, asked = format_unequal_bytes(there.memory, wanted.memory)
        return f"{whose} has {have} of memory, the job asks for {asked}"
    count = there.of(name)
    return f"it has {count or 'no'} {name}" + (f", the job asks for {wanted.of(name)}" if count else "")


def _choose(demand: Demand, sites: Sequence[SiteView], free: Mapping[str, Room]) -> SiteView | None:
    """Of the sites that have room now the cheapest, and of equals the one with the most room; then those that queue."""
    best: tuple[bool, float, float, str] | None = None
    chosen = None
    for site in sites:
        fits = not free[site.name].lacks(demand.room)
        if not fits and not site.queues:
            continue
        share = free[site.name].milli_cpus / max(1, site.capacity.milli_cpus)
        rank = (not fits, site.tariff.rate(demand.room), -share, site.name)
        if best is None or rank < best:
            best, chosen = rank, site
    return chosen


def why_there(
    demand: Demand,
    chosen: SiteView,
    sites: Sequence[SiteView],
    hindered: Mapping[str, str | None],
    free: Mapping[str, Room],
) -> str | None:
    """Why a job goes to a site, in words; None where it asked for no other; with what hinders it elsewhere."""
    asked = [site for site in sites if not demand.sites or site.name in demand.sites]
    if len(asked) < 2:
        return None
    others = [site for site in asked if site is not chosen][:MOST_TOLD]
    priced = len({site.tariff.rate(demand.room) for site in asked}) > 1
    reported = [
        f"{site.name}: {_listed(hindered[site.name]) or _state(demand, site, free, priced=priced)}" for site in others
    ]
    here = _state(demand, chosen, free, priced=priced)
    if free[chosen.name].lacks(demand.room):
        queue = "cheapest queue" if priced else "queue that is least full"
        here = f"no site has room now; it waits in the {queue}, {here}"
    return "; ".join([here, *reported])


def _listed(why: str | None) -> str:
    """As one piece of a list whose pieces are set apart by `; `."""
    return (why or "").replace("; ", ", ")


def _state(demand: Demand, site: SiteView, free: Mapping[str, Room], *, priced: bool) -> str:
    """What is free at a site of what a job asks for: what is short, or else the cpus; and what an hour there costs."""
    room = free[site.name]
    name = next(iter(room.lacks(demand.room)), "cpus")
    shown = {"cpus": format_cpus, "memory": format_bytes}.get(name, str)
    left, there = max(0, room.of(name)), site.capacity.of(name)
    what = {"cpus": "CPUs ", "memory": "of memory "}.get(name, f"{name} ")
    elsewhere = f" ({shown(taken)} taken by work that is not ours)" if (taken := site.others.of(name)) else ""
    cost = f", {site.tariff.rate(demand.room) * 3600:g} an hour" if priced else ""
    return f"{shown(left)} of {shown(there)} {what}free{elsewhere}{cost}"


def _reserve(demand: Demand, sites: Sequence[SiteView], free: dict[str, Room]) -> None:
    """Keep those behind from taking what this demand waits for, at the site where it is nearest to fitting."""
    if not sites:
        return
    site = min(sites, key=lambda s: (len(free[s.name].lacks(demand.room)), s.name))
    free[site.name] = free[site.name].plus(to_hold(demand.room, free[site.name]), -1)


def to_hold(wanted: Room, free: Room) -> Room:
    """What must be kept for a job that waits: all of it, or only the devices if nothing else is short."""
    lacking = set(free.lacks(wanted))
    if lacking & {"cpus", "memory"}:
        return wanted
    return Room(devices=tuple((name, count) for name, count in wanted.devices if name in lacking))


class Budgets:
    """What each tenant may still take."""

    def __init__(
        self, ledger: Ledger, tenants: Mapping[str, TenantSpec], full: Mapping[str, str] | None = None
    ) -> None:
        """`full` says of tenants whose storage is used what takes it."""
        self._ledger, self._tenants, self._full = ledger, tenants, full or {}
        self._extra: dict[str, tuple[Room, int]] = {}

    def take(self, demand: Demand) -> None:
        """One more job of the demand was given a site."""
        room, count = self._extra.get(demand.tenant, (Room(), 0))
        self._extra[demand.tenant] = (room.plus(self._counted(demand)), count + 1)

    def _counted(self, demand: Demand) -> Room:
        spec = self._tenants.get(demand.tenant)
        return counted(demand.room, spec.quota) if spec else demand.room

    def exceeded(self, demand: Demand) -> str | None:
        """Which quota the next job of the demand would exceed."""
        spec = self._tenants.get(demand.tenant)
        if spec is None:
            return None
        if full := self._full.get(demand.tenant):
            return full
        quota = spec.quota
        if quota.jobs is None and quota.cpus is None and quota.memory is None and not quota.devices:
            return None
        room, count = self._extra.get(demand.tenant, (Room(), 0))
        used = self._ledger.used(demand.tenant).plus(room).plus(self._counted(demand))
        if quota.memory is not None:
            unsized = self._ledger.unsized(demand.tenant).items()
            used = used.plus(Room(memory=sum(quota.default_memory(cpus) * jobs for cpus, jobs in unsized)))
        return _quota_broken(quota, used, self._ledger.active(demand.tenant) + count + 1, demand.room)


def counted(room: Room, quota: Quota) -> Room:
    """What a job counts with: where memory is limited, one that asks for none has a limit from the quota."""
    if room.memory:
        return room
    return replace(room, memory=quota.default_memory(room.milli_cpus))


def _quota_broken(quota: Quota, used: Room, jobs: int, wanted: Room | None = None) -> str | None:
    """Which part of a quota so much, and so many jobs, would exceed; only devices that are wanted matter."""
    if quota.jobs is not None and jobs > quota.jobs:
        return f"{quota.jobs} jobs at once"
    if quota.milli_cpus is not None and used.milli_cpus > quota.milli_cpus:
        return f"{quota.cpus} CPUs"
    if quota.memory_bytes is not None and used.memory > quota.memory_bytes:
        return f"{quota.memory} of memory"
    named = [name for name, _ in (wanted or used).devices if name in quota.devices]
    return next((f"{quota.devices[name]} {name}" for name in named if used.of(name) > quota.devices[name]), None)


def why_waiting(
    demand: Demand,
    suitable: Sequence[SiteView],
    sites: Sequence[SiteView],
    tenant: TenantSpec | None,
    over: str | None,
) -> Verdict:
    """What the jobs of a demand that found no room are shown."""
    if not sites:
        return Verdict("NoSites", "there is no site yet; an administrator adds one with isthmus apply")
    if not suitable:
        if demand.sites and not any(site.name in demand.sites for site in sites):
            return Verdict("NoSiteFits", f"{NO_SITE}: there is no site {' or '.join(demand.sites)}")
        found = [hindered for site in sites if (hindered := hindrance(demand, site, tenant))]
        return Verdict("NoSiteFits", str(no_site(found)))
    if over and STORAGE_USED in over:
        return Verdict(
            "QuotaExceeded",
            f"the tenant's quota of {over}; delete jobs whose files, outputs and logs are no longer needed with "
            "isthmus delete job NAME, or ask for more",
        )
    if over and tenant and _quota_broken(tenant.quota, counted(demand.room, tenant.quota), 1):
        return Verdict(
            "QuotaTooSmall", f"asks for more than the tenant's whole quota of {over}; ask for less, or for more"
        )
    if over:
        reported = f"the tenant's quota of {over} is used; the job starts when others end"
        if (
            over.endswith("of memory")
            and tenant
            and not demand.room.memory
            and (share := counted(demand.room, tenant.quota).memory)
        ):
            reported += f". It asks for no memory and counts with {format_bytes(share)}"
        return Verdict("QuotaExceeded", reported)
    names = ", ".join(site.name for site in suitable[:5])
    return Verdict("InsufficientRoom", f"waits for room at {names}, behind earlier or higher-priority jobs")
