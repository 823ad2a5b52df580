"""Lines: plans for more and fewer machines, in which the same jobs stay as they are.

With machines enough, the others choose freely; their packs are refined and then merged until they fit, in the same
order for any number of machines. Where that does not suffice, they choose anew at a price.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from .assigning import Load, settle
from .models import MachinePlan, Snapshot
from .packing import Chain, Pack
from .pricing import Asking, Fit
from .refining import Board, dissolve, fill
from .valuing import Market, Values


@dataclass
class Line:
    """Plans that keep some jobs as they are."""

    snapshot: Snapshot
    market: Market
    values: Values
    kept: frozenset[int]
    _asking: Asking = field(init=False)
    _priced: dict[int, tuple[Board, float] | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        market, values = self.market, self.values
        free = np.array([row not in self.kept for row in range(len(values.wait))])
        net = np.where(values.useful & free[:, None], values.gain - market.shares * values.run, -np.inf)
        self._asking = Asking(market, net, np.where(values.useful, market.slots * values.run, 0.0), values.slack)

    @cached_property
    def _loose(self) -> Fit:
        return self._asking.fit(len(self.values.wait))

    @cached_property
    def _free(self) -> Board:
        return self._refined(self._loose)

    @cached_property
    def most(self) -> int:
        """With so many machines or more, the plan is the same."""
        return len(self._anchors()) + len(self._loose.packs)

    @cached_property
    def _homes(self) -> list[Pack]:
        return [pack for pack in self._free.packs if pack.home is not None]

    @cached_property
    def _chain(self) -> Chain:
        others = [pack for pack in self._free.packs if pack.home is None]
        return Chain(self.market, others, [max(self._free.run(job) for job in pack.jobs) for pack in others])

    @cached_property
    def enough(self) -> float:
        """What free choice is worth on as many machines as one likes."""
        return self._free.worth() - self._chain.surcharge(len(self._chain))

    @property
    def least(self) -> int:
        """With fewer machines, somebody must do with less than he would choose."""
        return len(self._homes) + self._chain.least

    def free(self, limit: int) -> Board:
        """What all would choose if machines had no price, merged as far as it must be; not for fewer than the least."""
        return replace(self._free, packs=self._homes + self._chain.packs(limit - len(self._homes)))

    def priced(self, limit: int) -> tuple[Board, float] | None:
        """What they choose for so many machines, and the price of one; None if those who stay need more."""
        if limit >= self.most:
            return self._free, 0.0
        if limit not in self._priced:
            room = limit - len(self._anchors())
            found = None if room < 0 else self._asking.fit(room)
            self._priced[limit] = found and (self._refined(found), found.price)
        return self._priced[limit]

    def price(self, limit: int) -> float:
        """Of a machine, if there are so many; 0 also if those who stay need more."""
        found = self.priced(limit)
        return found[1] if found else 0.0

    def _anchors(self) -> list[Pack]:
        """A pack for each machine that has jobs which stay."""
        packs: dict[str, Pack] = {}
        for row in sorted(self.kept):
            state = self.snapshot.jobs[row]
            assert state.placement is not None
            machine = state.placement.machine
            kind = self.snapshot.configured[machine]
            found = packs.setdefault(machine, Pack(kind.device, 0, [], machine, kind))
            found.used += state.placement.devices
            found.jobs.append(row)
            found.fixed |= not state.job.restartable
        return list(packs.values())

    def _board(self, packs: list[Pack], chosen: dict[int, int]) -> Board:
        """The anchors and other packs together."""
        stay = {row: int(self.values.column[row]) for row in self.kept}
        bound = frozenset(row for row in self.kept if not self.snapshot.jobs[row].job.restartable)
        return Board(self.market, self.values, self._anchors() + packs, stay | chosen, set(self.kept), bound)

    def _refined(self, found: Fit) -> Board:
        board = self._board(found.packs, {job: c for job, c in enumerate(found.columns.tolist()) if c >= 0})
        dissolve(board)
        fill(board)
        if not board.packs:  # somebody has to run, or nothing would ever happen again: who waits least well
            board = self._board([], {})
            if not board.packs:
                alone = self.values.gain - self.market.alone * self.values.run
                job, column = (int(index) for index in np.unravel_index(int(alone.argmax()), alone.shape))
                board = self._board([Pack(*self.market.columns[column], [job])], {job: column})
            fill(board)
        return board

    def shown(self, board: Board) -> MachinePlan:
        """The plan that a board shows."""
        columns, jobs = self.market.columns, self.snapshot.jobs
        loads = [
            Load(board.kind(p), {jobs[job].job.name: columns[board.chosen[job]][1] for job in p.jobs}, p.home)
            for p in board.packs
        ]
        return settle(self.snapshot, loads)
