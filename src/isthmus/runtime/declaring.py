"""Declarations: what a part of the control plane looks after and what wakes it, as data for the loop that starts it.

A *reconciler* names its kind, how many workers it has, what it **watches** (a kind, a predicate that says which changes
matter, and a mapping from the changed object to the keys that deserve a look) and what it **owns** (objects that bear
its owner reference: a change of one is a look at its owner). A *background* part has no keys and just runs.

Both may **observe** a kind: their handler hears of every change, to keep an index or to wake somebody. Where the order
of handlers matters, `before` says so; where a part must not begin before another has looked around, `after` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from isthmus.resources.kinds import Kind
from isthmus.store.base import Key, Record

from .controllers import Reconcile
from .informers import Handler, Informer

When = Callable[[Record | None, Record | None], bool]
"""Whether a change (the old and the new record; None where there is none) matters."""
Keys = Callable[[Record], Iterable[Key]]
"""The keys that deserve a look when an object changed; given the new record, or the old one of a removed object."""
Work = Callable[[], Awaitable[None]]


def always(old: Record | None, new: Record | None) -> bool:
    """Every change matters."""
    return True


def exists(old: Record | None, new: Record | None) -> bool:
    """Every change but the removal."""
    return new is not None


def spec_changed(old: Record | None, new: Record | None) -> bool:
    """It appeared or went, or its spec, its labels or its being deleted changed: not its status alone."""
    if old is None or new is None or old.uid != new.uid:
        return True
    before, after = old.obj["metadata"], new.obj["metadata"]
    return any(before.get(mark) != after.get(mark) for mark in ("generation", "deletionTimestamp", "labels"))


def status_changed(*parts: str) -> When:
    """It appeared or went, or one of these parts of its status changed."""

    def changed(old: Record | None, new: Record | None) -> bool:
        if old is None or new is None:
            return True
        before, after = old.obj.get("status") or {}, new.obj.get("status") or {}
        return any(before.get(part) != after.get(part) for part in parts)

    return changed


def either(*conditions: When) -> When:
    """One of several."""
    return lambda old, new: any(condition(old, new) for condition in conditions)


def both(*conditions: When) -> When:
    """All of several."""
    return lambda old, new: all(condition(old, new) for condition in conditions)


def itself(record: Record) -> Iterable[Key]:
    """The changed object."""
    return (record.key,)


def every(informer: Informer) -> Keys:
    """All objects of a kind, whichever object of another kind changed."""
    return lambda _: [known.key for known in informer.all()]


def owners(kind: Kind) -> Keys:
    """The objects of a kind that own the changed one."""

    def found(record: Record) -> Iterable[Key]:
        namespace = record.key.namespace if kind.namespaced else ""
        for owner in record.obj["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == kind.name:
                yield Key(kind.name, namespace, owner["name"])

    return found


@dataclass(frozen=True, slots=True)
class Watches:
    """Changes of a kind that mean a look at some keys."""

    kind: Kind
    when: When = always
    keys: Keys = itself


@dataclass(frozen=True, slots=True)
class Observes:
    """A handler that hears of every change of a kind."""

    kind: Kind
    changed: Handler
    before: tuple[str, ...] = ()
    """Names of parts whose handlers for this kind must come later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanePart:
    """A part of the control plane."""

    name: str
    """Unique; in logs, in metrics, and for `after` and `before`."""
    observes: tuple[Observes, ...] = ()
    after: tuple[str, ...] = ()
    """Names of parts that must be ready before this one begins."""
    ready: Work | None = None
    """Returns when those that come after this part may begin; without it, as soon as it was started."""
    close: Work | None = None
    """Lets go of what it holds, when we no longer lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background(PlanePart):
    """A part that just runs; started again when it fails."""

    run: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler(PlanePart):
    """A part that brings objects of one kind to what is wanted of them."""

    kind: Kind
    reconcile: Reconcile
    workers: int
    """Keys handled at the same time."""
    watches: tuple[Watches, ...] = ()
    owns: tuple[Kind, ...] = ()
    """Kinds whose objects it makes. Their changes mean a look at their owner, unless it observes the kind and decides
    for itself which do."""

    def all_watches(self) -> list[Watches]:
        """What it watches, what it owns included."""
        observed = {observed.kind.name for observed in self.observes}
        owned = [Watches(kind, keys=owners(self.kind)) for kind in self.owns if kind.name not in observed]
        return [*self.watches, *owned]


def start_order(parts: Sequence[PlanePart]) -> list[list[PlanePart]]:
    """The parts in groups: those of one group may begin together, once those of earlier groups are ready."""
    by_name = {part.name: part for part in parts}
    assert len(by_name) == len(parts), "two parts have the same name"
    missing = {name for part in parts for name in part.after if name not in by_name}
    assert not missing, f"a part comes after {', '.join(missing)}, which is not there"
    sorter: TopologicalSorter[str] = TopologicalSorter({part.name: part.after for part in parts})
    sorter.prepare()
    groups = []
    while sorter.is_active():
        names = sorter.get_ready()
        groups.append([part for part in parts if part.name in names])
        sorter.done(*names)
    return groups


def handler_order(parts: Sequence[PlanePart], kind: Kind) -> list[PlanePart]:
    """The parts in the order in which they hear of a change of a kind: as listed, where nothing else was declared."""
    earlier: Mapping[str, list[str]] = {part.name: [] for part in parts}
    for part in parts:
        for observed in part.observes:
            for later in observed.before if observed.kind is kind else ():
                earlier[later].append(part.name)
    by_name = {part.name: part for part in parts}
    placed: dict[str, PlanePart] = {}

    def place(name: str) -> None:
        for other in earlier[name]:
            if other not in placed:
                place(other)
        placed.setdefault(name, by_name[name])

    list(TopologicalSorter(earlier).static_order())  # raises when two come before each other
    for part in parts:
        place(part.name)
    return list(placed.values())


def kinds_of(parts: Sequence[PlanePart]) -> list[Kind]:
    """Every kind that a part looks after, watches or observes."""
    found: dict[str, Kind] = {}
    for part in parts:
        kinds: list[Any] = [observed.kind for observed in part.observes]
        if isinstance(part, Reconciler):
            kinds += [part.kind, *(watch.kind for watch in part.all_watches())]
        found |= {kind.name: kind for kind in kinds}
    return list(found.values())
