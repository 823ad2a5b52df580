"""The loop over all parts: their informers are filled, their handlers connected, their tasks supervised.

A part that fails with an exception nobody foresaw is logged with the reason, counted in the metrics, and started again
after a pause; the others go on meanwhile. A reconciler that was started again looks at every object of its kind, since
what was in its queue may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from isthmus._kit.tasks import SupervisedTasks
from isthmus.metrics import count_task_failure
from isthmus.resources.kinds import Kind
from isthmus.store.base import Key, Record, Store

from .controllers import Controller
from .declaring import Background, PlanePart, Reconciler, Watches, Work, handler_order, kinds_of, start_order
from .informers import Accept, Handler, Informer
from .queues import WorkQueue

LONGEST_PAUSE = 30.0
"""Seconds between a failure of a part and its next start, at most: what breaks it may be mended by a change of one
object, and nobody should have to wait longer than that."""


class Informers:
    """One informer for each kind that somebody asks for."""

    def __init__(self, store: Store, accept: Callable[[Kind], Accept | None] = lambda _: None) -> None:
        self._store, self._accept = store, accept
        self._made: dict[str, Informer] = {}

    def of(self, kind: Kind) -> Informer:
        """The informer of a kind."""
        if (known := self._made.get(kind.name)) is None:
            known = self._made[kind.name] = Informer(self._store, kind, accept=self._accept(kind))
        return known

    def all(self) -> list[Informer]:
        """Those that were asked for."""
        return list(self._made.values())


class Queues:
    """The queues of reconcilers, by their names: also for those who are made before the reconciler is."""

    def __init__(self) -> None:
        self._made: dict[str, WorkQueue[Key]] = {}

    def of(self, name: str) -> WorkQueue[Key]:
        """The queue of a reconciler."""
        return self._made.setdefault(name, WorkQueue())


class Manager:
    """Runs parts, for as long as we lead."""

    def __init__(self, parts: Sequence[PlanePart], informers: Informers, queues: Queues) -> None:
        self._groups = start_order(parts)
        self._informers = informers
        self._work = {part.name: self._work_of(part, queues) for part in parts}
        self._closes = [part.close for part in parts if part.close is not None]
        for kind in kinds_of(parts):
            informer = informers.of(kind)
            for part in handler_order(parts, kind):
                for handler in _handlers(part, kind, queues):
                    informer.on_change(handler)

    async def run(self) -> None:
        """Run all parts until cancelled."""
        tasks = SupervisedTasks(failed=count_task_failure, longest_pause=LONGEST_PAUSE)
        try:
            informers = self._informers.all()
            for informer in informers:
                tasks.start(f"informer of {informer.kind.plural}", informer.run)
            for informer in informers:
                await informer.synced()
            for group in self._groups:
                for part in group:
                    tasks.start(part.name, self._work[part.name])
                for part in group:
                    if part.ready is not None:
                        await part.ready()
            await asyncio.Event().wait()
        finally:
            await asyncio.shield(self._close(tasks))

    async def _close(self, tasks: SupervisedTasks) -> None:
        await tasks.close()
        await asyncio.gather(*(close() for close in self._closes))

    def _work_of(self, part: PlanePart, queues: Queues) -> Work:
        if isinstance(part, Background):
            return part.run
        assert isinstance(part, Reconciler)
        controller = Controller(part.name, part.reconcile, workers=part.workers, queue=queues.of(part.name))
        return _Restartable(controller, self._informers.of(part.kind)).run


class _Restartable:
    """A controller that may be started again."""

    def __init__(self, controller: Controller, informer: Informer) -> None:
        self._controller, self._informer = controller, informer
        self._started = False

    async def run(self) -> None:
        if self._started:
            for record in self._informer.all():
                self._controller.queue.add(record.key)
        self._started = True
        await self._controller.run()


def _handlers(part: PlanePart, kind: Kind, queues: Queues) -> list[Handler]:
    handlers = [observed.changed for observed in part.observes if observed.kind is kind]
    if isinstance(part, Reconciler):
        add = queues.of(part.name).add
        handlers += [_look(watch, add) for watch in part.all_watches() if watch.kind is kind]
    return handlers


def _look(watch: Watches, add: Callable[[Key], None]) -> Handler:
    def changed(old: Record | None, new: Record | None) -> None:
        record = new or old
        if record is not None and watch.when(old, new):
            for key in watch.keys(record):
                add(key)

    return changed
