"""Refining: what each job wants alone is not yet what is best for all.

A pack that costs more than its jobs gain is dissolved where that pays: its jobs move into holes (idle devices of
other packs, which are paid anyway), to a machine of their own, or wait. Then holes are filled with jobs that wait
or with more devices for those beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .models import MachineType
from .packing import Pack
from .valuing import Market, Values

_TINY = 1e-12


@dataclass(slots=True)
class Board:
    """Packs under construction, and the column of each job that runs."""

    market: Market
    values: Values
    packs: list[Pack]
    chosen: dict[int, int]
    staying: set[int]
    """Jobs that stay where they are, as they are."""
    bound: frozenset[int]
    """Those of them that must."""

    def kind(self, pack: Pack) -> MachineType:
        """The machine that a pack gets."""
        return pack.kind or self.market.hosts[pack.device][pack.used]

    def hole(self, pack: Pack) -> int:
        """Devices that stay idle."""
        return self.kind(pack).devices - pack.used

    def gain(self, job: int) -> float:
        """What a job gains as it is placed."""
        return float(self.values.stay[job] if job in self.staying else self.values.gain[job, self.chosen[job]])

    def run(self, job: int) -> float:
        """How long it is expected to be paid."""
        return float(self.values.stay_run[job] if job in self.staying else self.values.run[job, self.chosen[job]])

    def net(self, pack: Pack) -> float:
        """What its jobs gain less its machine, until the last of them ends or all is decided anew."""
        longest = max(self.run(job) for job in pack.jobs)
        return sum(self.gain(job) for job in pack.jobs) - longest * self.market.objective.rate(self.kind(pack))

    def worth(self) -> float:
        """Of all packs."""
        return sum(self.net(pack) for pack in self.packs)


class _Holes:
    """Packs with idle devices, by device type and number."""

    def __init__(self, board: Board, packs: Iterable[Pack]) -> None:
        self._board = board
        self._found: dict[str, dict[int, list[Pack]]] = {}
        for pack in packs:
            self.add(pack)

    def add(self, pack: Pack) -> None:
        if hole := self._board.hole(pack):
            self._found.setdefault(pack.device, {}).setdefault(hole, []).append(pack)

    def remove(self, pack: Pack) -> None:
        if hole := self._board.hole(pack):
            packs = self._found[pack.device][hole]
            packs.remove(pack)
            if not packs:
                del self._found[pack.device][hole]

    def widest(self) -> Iterable[tuple[str, int]]:
        """For each device type, the most devices idle in one pack."""
        return [(device, max(holes)) for device, holes in self._found.items() if holes]

    def tightest(self, device: str, devices: int) -> Pack:
        """The pack with the least room that suffices."""
        holes = self._found[device]
        return holes[min(hole for hole in holes if hole >= devices)][-1]


def dissolve(board: Board) -> None:
    """Take apart the packs that do not pay, the worst first.

    No more machines run afterwards than before, however many there are: where machines are plenty, one more must
    not change the plan.
    """
    weak = sorted(
        (net, index) for index, pack in enumerate(board.packs) if not pack.fixed and (net := board.net(pack)) < -_TINY
    )
    if not weak:
        return
    holes = _Holes(board, board.packs)
    everyone = list(board.packs)
    gone: set[int] = set()
    for _, index in weak:
        pack = everyone[index]
        holes.remove(pack)
        free = len(everyone) - (len(board.packs) - len(gone)) + 1
        before = [(job, board.chosen[job], job in board.staying) for job in pack.jobs]
        net = board.net(pack)
        value, new, moved = _scatter(board, holes, pack, free)
        if value > net + _TINY:
            gone.add(id(pack))
            board.packs += new
        else:
            _gather(board, holes, before, moved)
            holes.add(pack)
    board.packs = [pack for pack in board.packs if id(pack) not in gone]


def _scatter(board: Board, holes: _Holes, pack: Pack, free: int) -> tuple[float, list[Pack], list[tuple[int, Pack]]]:
    """Move the jobs of a pack to where each gains most; what they gain, the new packs, and who went into a hole."""
    market, values = board.market, board.values
    total = 0.0
    new: list[Pack] = []
    moved: list[tuple[int, Pack]] = []
    for job in sorted(pack.jobs, key=lambda j: (-board.gain(j), j)):
        best, column, alone = _TINY, -1, False
        for device, hole in holes.widest():
            first = market.first[device]
            at = first + int(values.gain[job, first : first + hole].argmax())
            if values.gain[job, at] > best:
                best, column = float(values.gain[job, at]), at
        if free > len(new):
            nets = values.gain[job] - market.alone * values.run[job]
            at = int(nets.argmax())
            if nets[at] > best:
                best, column, alone = float(nets[at]), at, True
        board.staying.discard(job)
        if column < 0:
            del board.chosen[job]
            continue
        total += best
        device, count = market.columns[column]
        board.chosen[job] = column
        if alone:
            new.append(Pack(device, count, [job]))
        else:
            target = holes.tightest(device, count)
            holes.remove(target)
            target.jobs.append(job)
            target.used += count
            holes.add(target)
            moved.append((job, target))
    return total, new, moved


def _gather(board: Board, holes: _Holes, before: list[tuple[int, int, bool]], moved: list[tuple[int, Pack]]) -> None:
    """Undo `_scatter`."""
    for job, target in moved:
        holes.remove(target)
        target.jobs.remove(job)
        target.used -= board.market.columns[board.chosen[job]][1]
        holes.add(target)
    for job, column, stayed in before:
        board.chosen[job] = column
        if stayed:
            board.staying.add(job)


def fill(board: Board) -> None:
    """Give idle devices to jobs that wait, or to those beside them, whoever gains most per device."""
    market, values = board.market, board.values
    waiting = [job for job in range(len(values.wait)) if job not in board.chosen]
    for pack in board.packs:
        first = market.first[pack.device]
        while (hole := board.hole(pack)) > 0:
            best, job, column = _TINY, -1, -1
            if waiting:
                per_device = values.gain[waiting, first : first + hole] / market.counts[first : first + hole]
                at = int(per_device.argmax())
                if per_device.flat[at] > best:
                    best, job, column = float(per_device.flat[at]), waiting[at // hole], first + at % hole
            for member in pack.jobs:
                now = board.chosen[member]
                last = min(now + hole, first + market.sizes[pack.device] - 1)
                if last > now and member not in board.bound:
                    more = values.gain[member, now + 1 : last + 1] - board.gain(member)
                    more = more / np.arange(1, last - now + 1)
                    at = int(more.argmax())
                    if more[at] > best:
                        best, job, column = float(more[at]), member, now + 1 + at
            if job < 0:
                break
            kind = board.kind(pack)
            pack.used += market.columns[column][1]
            if job in board.chosen:
                pack.used -= market.columns[board.chosen[job]][1]
                board.staying.discard(job)
            else:
                pack.jobs.append(job)
                waiting.remove(job)
            board.chosen[job] = column
            assert board.kind(pack).devices <= kind.devices
