"""Pricing: what jobs choose when a machine has a price, and the price at which their choices fit.

Each job takes the option that is best for itself. Where more is wanted than there is, a price per machine makes them
modest: some take fewer devices, some wait. The same prices say what any plan can reach at best (`Ceiling`), which
says when there is no use in looking further.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .packing import Pack, fits, pack
from .valuing import Columns, Floats, Market, Values

_HALVINGS = 12
_STEPS = 24
"""So many prices are tried for a ceiling, each a part of the one before."""
_PART = 0.6
_TINY = 1e-9


class Fit(NamedTuple):
    """Choices that fit at a price for a machine."""

    price: float
    columns: Columns
    """The option of each job; -1 if it waits."""
    packs: list[Pack]


class Asking:
    """What each job asks for at a price, kept for all numbers of machines."""

    def __init__(self, market: Market, net: Floats, slots: Floats, slack: Floats) -> None:
        self._market, self._net, self._slots, self._slack = market, net, slots, slack
        self._at: dict[float, Columns] = {}

    def at(self, price: float) -> Columns:
        """The option that each job takes at a price; -1 if it waits."""
        if price not in self._at:
            score = self._net - price * self._slots
            columns = score.argmax(axis=1)
            best = score[np.arange(len(columns)), columns]
            self._at[price] = np.where(best >= -_TINY, columns, -1)
        return self._at[price]

    def fit(self, room: int) -> Fit:
        """The choices at the lowest price that makes them fit on so many machines.

        Many jobs change their mind at the same price: who must hurry at some time is indifferent when. So those
        that would choose otherwise at a slightly lower price have it, who has the least slack first, as many as fit.
        Without this, devices stay idle now, and later all hurry at once.
        """
        if self._fits(self.at(0.0), room):
            return self._packed(0.0, self.at(0.0), room)
        low, high = 0.0, max(max(rates) for rates in self._market.rates.values()) or 1.0
        while not self._fits(self.at(high), room):
            low, high = high, high * 4
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._fits(self.at(middle), room):
                high = middle
            else:
                low = middle
        dearer, cheaper = self.at(high), self.at(low)
        torn = np.nonzero(dearer != cheaper)[0]
        torn = torn[np.argsort(self._slack[torn], kind="stable")]

        def so_many(count: int) -> Columns:
            columns = dearer.copy()
            columns[torn[:count]] = cheaper[torn[:count]]
            return columns

        some, many = 0, len(torn)
        while some < many - 1:
            half = (some + many) // 2
            if self._fits(so_many(half), room):
                some = half
            else:
                many = half
        return self._packed(high, so_many(some), room)

    def _fits(self, columns: Columns, room: int) -> bool:
        counts = np.bincount(columns[columns >= 0], minlength=len(self._market.columns))
        return fits(self._market, counts, room)

    def _packed(self, price: float, columns: Columns, room: int) -> Fit:
        jobs = np.nonzero(columns >= 0)[0]
        packs = pack(self._market, jobs.tolist(), columns[jobs].tolist(), room)
        assert packs is not None
        return Fit(price, columns, packs)


class Ceiling:
    """What no plan for so many machines can exceed.

    At any price, no plan is worth more than what all jobs would gain by paying it, each for itself, plus the price
    of all machines for as long as any is paid. The lowest of these sums is the ceiling.
    """

    def __init__(self, market: Market, values: Values) -> None:
        running = values.column >= 0
        own = np.where(running, values.stay - market.shares[values.column] * values.stay_run, -np.inf)
        slot = np.where(running, market.slots[values.column] * values.stay_run, 0.0)
        self._net = np.column_stack([values.gain - market.shares * values.run, own])
        self._slots = np.column_stack([market.slots * values.run, slot])
        runs = np.column_stack([values.run, values.stay_run])
        self._longest = float(np.where(np.isfinite(self._net), runs, 0.0).max())
        self._slots[~np.isfinite(self._net)] = 0.0
        self.best: Floats = np.maximum(self._net.max(axis=1), 0.0)
        """What each job gains at best, if it pays for its devices and nothing else."""
        self.free = float(self.best.sum())
        dearest = max(max(rates) for rates in market.rates.values()) or 1.0
        self._prices = dearest * 4 * _PART ** np.arange(_STEPS)
        self._paying: list[float] = []
        self._sizes, self._first = market.sizes, market.first
        self._columns, self._now = market.columns, values.column

    def at(self, machines: int) -> float:
        """For so many machines or fewer."""
        if not self._paying:
            self._paying = [float(np.maximum((self._net - p * self._slots).max(axis=1), 0).sum()) for p in self._prices]
        return min(self.free, float((self._paying + self._prices * self._longest * machines).min()))

    def short(self, job: int, column: int) -> float:
        """What a job falls short of its best with the devices of a column, or more of them."""
        device = self._columns[column][0]
        reach = slice(column, self._first[device] + self._sizes[device])
        most = float(self._net[job, reach].max())
        if reach.start <= self._now[job] < reach.stop:
            most = max(most, float(self._net[job, -1]))
        return float(self.best[job]) - most
