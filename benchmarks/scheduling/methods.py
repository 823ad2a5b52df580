"""The methods by name."""

from __future__ import annotations

from functools import partial

from isthmus.errors import Invalid
from isthmus.scheduling.deadlines.models import sound

from .ordering import by_arrival, by_deadline, by_weight, greedy, shared, unshared
from .relinking import ITERATIONS, path_relinking, random_greedy
from .simulating import Method

METHODS = (
    "fifo",
    "edf",
    "priority",
    "fifo-shared",
    "edf-shared",
    "priority-shared",
    "greedy",
    "random-greedy",
    "path-relinking",
    "isthmus",
)
RANDOMISED = frozenset({"random-greedy", "path-relinking"})
_ORDERS = {"fifo": by_arrival, "edf": by_deadline, "priority": by_weight}


def method(name: str, *, seed: int = 0, iterations: int = ITERATIONS) -> Method:
    """The method of a name. The seed and the number of drafts matter to randomised ones only."""
    chosen = _named(name, seed, iterations)
    return lambda snapshot: chosen(sound(snapshot))


def _named(name: str, seed: int, iterations: int) -> Method:
    order = _ORDERS.get(name.removesuffix("-shared"))
    if order is not None:
        return partial(shared if name.endswith("-shared") else unshared, order)
    if name == "greedy":
        return greedy
    if name in RANDOMISED:
        return partial(random_greedy if name == "random-greedy" else path_relinking, seed=seed, iterations=iterations)
    if name == "isthmus":
        from isthmus.scheduling.deadlines.optimising import (
            optimise,
        )  # NumPy takes a moment to import, and only this method needs it

        return optimise
    raise Invalid(f"there is no method {name!r}; choose from {', '.join(METHODS)}")
