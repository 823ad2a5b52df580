"""Site: open its engine, look what is there, hear of its runs, close it when it goes.

A site that does not answer, or a background task of whose engine is down, is `Unreachable`: nothing new is sent there
and nothing is concluded about its jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from isthmus._kit.clock import parse_timestamp, timestamp, utcnow
from isthmus._kit.durations import parse_duration
from isthmus._kit.tasks import Supervised
from isthmus._kit.tasks import reason as reason_of
from isthmus.engines.base import Capabilities, ContactedEngine, Engine, Inventory
from isthmus.errors import IsthmusError, Superseded
from isthmus.metrics import count_task_failure
from isthmus.reconcilers.jobs.job_index import JobIndex
from isthmus.reconcilers.recording import Recorder
from isthmus.reconcilers.writing import Writer
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.frame.meta import Condition, ConditionStatus, set_condition
from isthmus.resources.frame.states import SITE_TRANSITIONS, SitePhase, check_transition
from isthmus.resources.jobs import uid_of_run
from isthmus.resources.kinds import DEVICE_CLASS, SITE
from isthmus.resources.sites import AgentContact, Site, SiteSpec, SiteStatus
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.declaring import Reconciler, Watches, every, spec_changed
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.store.base import Key, Record, Store

from .registry import EngineRegistry

if TYPE_CHECKING:
    from isthmus.reconcilers.shared import Shared

log = logging.getLogger(__name__)

FINALIZER = "isthmus.dev/site"
PATIENCE = 5.0
"""Seconds that jobs wait at the start for sites to be looked at: one that hangs must not hold the others' jobs up."""
MakeEngine = Callable[[Site], Awaitable[Engine]]
"""Makes the engine of a site from its spec, not yet opened; raises Misconfigured for a driver it does not know."""


@dataclass(slots=True)
class _OpenEngine:
    spec: SiteSpec
    pump: Supervised


class SiteReconciler:
    """Keeps engines open and inventories fresh."""

    def __init__(
        self,
        *,
        store: Store,
        sites: Informer,
        classes: Informer,
        index: JobIndex,
        engines: EngineRegistry,
        make_engine: MakeEngine,
        leadership: Leadership,
        recorder: Recorder,
        look: Callable[[Key], None],
        opened: Callable[[], None],
        again: Callable[[Key], None] = lambda _: None,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        """`look` has a job looked at, and `again` a site; `opened` is called when an engine has been opened."""
        self._again = again
        self._sites, self._classes, self._index, self._engines = sites, classes, index, engines
        self._make_engine, self._recorder, self._now = make_engine, recorder, now
        self._look, self._opened = look, opened
        self._leadership, self._writer = leadership, Writer(store, leadership, sites)
        self._open: dict[str, _OpenEngine] = {}
        self._tried: set[str] = set()
        self._progress = asyncio.Event()

    async def tried(self, names: set[str], patience: float) -> None:
        """Wait, not for ever, until each of these sites was looked at once: before, none would be connected."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not names <= self._tried:
                    self._progress.clear()
                    await self._progress.wait()

    async def reconcile(self, key: Key) -> Result:
        """One look at one site."""
        try:
            return await self._look_at(key)
        finally:
            self._tried.add(key.name)
            self._progress.set()

    async def _look_at(self, key: Key) -> Result:
        record = self._sites.get(key)
        self._engines.expect({known.key.name for known in self._sites.all()})
        if record is None:
            await self._close(key.name)
            for uid in self._index.ledger.at(key.name):  # gone by force: nobody else will report its jobs
                self._look(self._index.keys[uid])
            return DONE
        site = Site.model_validate(record.obj)
        if site.metadata.deletion_timestamp:
            return await self._remove(record, site)
        if FINALIZER not in (site.metadata.finalizers or ()):
            record = await self._writer.metadata(record, finalizers=[*(site.metadata.finalizers or ()), FINALIZER])
            site = Site.model_validate(record.obj)
        try:
            engine = await self._engine(site)
            inventory = await engine.probe(self._device_classes())
        except IsthmusError as error:
            if isinstance(error, Superseded):
                await self._close(site.name)
            await self._note(record, site, unreachable(site, error.message, self._now()))
            self._give_up_jobs(site.name)
            return Result(requeue_after=min(5.0, parse_duration(site.spec.probe_interval)))
        except Exception as error:  # nobody foresaw it; it is tried again, and until then the site does not work
            await self._note(
                record, site, unreachable(site, f"it could not be looked at: {reason_of(error)}", self._now())
            )
            raise
        if failing := self._failing(site.name, engine):
            await self._note(record, site, unreachable(site, failing, self._now(), "TaskFailed"))
            return Result(requeue_after=min(5.0, parse_duration(site.spec.probe_interval)))
        await self._note(record, site, reachable(site, inventory, self._now(), abilities(engine.capabilities)))
        return Result(requeue_after=parse_duration(site.spec.probe_interval))

    async def close(self) -> None:
        """Close all engines; their runs go on."""
        for name in list(self._open):
            await self._close(name)

    async def _engine(self, site: Site) -> Engine:
        known = self._open.get(site.name)
        if known and known.spec == site.spec and (engine := self._engines.find(site.name)):
            return engine
        await self._close(site.name)
        self._leadership.check()  # to open a site is to take it over
        engine = await self._make_engine(site)
        try:
            await engine.open()
        except BaseException:
            await engine.close()  # it may have begun something before it failed
            raise
        self._engines.put(site.name, engine)
        key = Key(SITE.name, "", site.name)
        engine.tasks.on_change(lambda: self._again(key))
        pump = Supervised(
            "site-changes", lambda: self._pump(site.name, engine), failed=count_task_failure,
            changed=lambda: self._again(key), about={"site": site.name},
        )  # fmt: skip
        pump.start()
        self._open[site.name] = _OpenEngine(site.spec, pump)
        self._opened()
        return engine

    def _give_up_jobs(self, name: str) -> None:
        """Look at the jobs of a site whose runs count as lost: nobody else would report them."""
        engine: object = self._engines.find(name)
        if isinstance(engine, ContactedEngine) and engine.lost:
            for uid in self._index.ledger.at(name):
                self._look(self._index.keys[uid])

    def _failing(self, name: str, engine: Engine) -> str:
        """Which background tasks of a site are down, and why; empty if none is."""
        found = engine.tasks.failures()
        if (known := self._open.get(name)) and known.pump.failure:
            found[known.pump.name] = known.pump.failure
        return "; ".join(
            f"its background task {task} failed and is started again: {why}" for task, why in found.items()
        )

    async def _close(self, name: str) -> None:
        if known := self._open.pop(name, None):
            await known.pump.stop()
        if engine := self._engines.take(name):
            await engine.close()

    async def _pump(self, name: str, engine: Engine) -> None:
        """Turn the engine's news into looks at jobs."""
        while True:
            try:
                first = True  # names every run there is: ended ones may still want tidying up
                async for runs in engine.changes():
                    for run_id in runs:
                        identity = uid_of_run(run_id)
                        key = self._index.keys.get(identity)
                        if key and (first or engine.capabilities.corrects or not self._index.ended(identity)):
                            self._look(key)
                    first = False
            except IsthmusError as error:
                log.warning("no news from site", extra={"site": name, "error": str(error)})
            await asyncio.sleep(1)

    async def _note(self, record: Record, site: Site, status: SiteStatus) -> None:
        check_transition(SITE_TRANSITIONS, site.status.phase, status.phase)
        engine: object = self._engines.find(site.name)
        if isinstance(engine, ContactedEngine):
            status = status.model_copy(update={"agent": engine.contact()})
        unchanged = status.model_copy(update={"probed_at": site.status.probed_at, "agent": _same_contact(site, status)})
        if unchanged == site.status and not _is_old(site.status.probed_at, status.probed_at):
            return  # the time of the look alone is not news, but for now and then
        await self._writer.status(record, status)
        if status.phase is not site.status.phase:
            reported = status.message or f"{status.phase.value}"
            self._recorder.say(site, status.phase.value, reported, warning=status.phase is SitePhase.UNREACHABLE)

    async def _remove(self, record: Record, site: Site) -> Result:
        if FINALIZER not in (site.metadata.finalizers or ()):
            return DONE
        if self._index.ledger.jobs_at(site.name):
            return Result(requeue_after=1)  # its jobs end first; nothing new is placed here
        await self._close(site.name)
        kept = [name for name in site.metadata.finalizers or () if name != FINALIZER]
        await self._writer.metadata(record, finalizers=kept)
        return DONE

    def _device_classes(self) -> list[DeviceClass]:
        return [DeviceClass.model_validate(record.obj) for record in self._classes.all()]


LOOK_NOTED_SECONDS = 300.0
"""After so long it is written down again that a site was looked at, though nothing has changed."""
_ABILITIES = {
    "environments": "environments",
    "images": "images",
    "image-files": "image_files",
    "multi-node": "multi_node",
    "needs-image": "needs_image",
    "queues": "queues",
}
"""Words of the site's status, and the capabilities that they stand for."""


def abilities(able: Capabilities) -> list[str]:
    """What an engine can do by itself, in words that the site's status keeps."""
    return [word for word, name in _ABILITIES.items() if getattr(able, name)]


def _same_contact(site: Site, status: SiteStatus) -> AgentContact | None:
    """What was heard, as if it had been heard when it was last: that time alone is not news either."""
    if status.agent is None or site.status.agent is None:
        return status.agent
    return status.agent.model_copy(update={"last_contact": site.status.agent.last_contact})


def _is_old(before: str | None, now: str | None) -> bool:
    """Whether the last look that was written down is so old that people would wonder."""
    if before is None or now is None:
        return before != now
    return (parse_timestamp(now) - parse_timestamp(before)).total_seconds() >= LOOK_NOTED_SECONDS


def capabilities(site: Site) -> Capabilities:
    """The same, read back: for those who have no engine at hand."""
    able: dict[str, Any] = {name: word in site.status.abilities for word, name in _ABILITIES.items()}
    return Capabilities(**able)


def reachable(site: Site, inventory: Inventory, now: datetime, able: Sequence[str] = ()) -> SiteStatus:
    """The status of a site that answered: pure."""
    phase = SitePhase.READY if site.spec.enabled else SitePhase.DISABLED
    return site.status.model_copy(
        update={
            "phase": phase,
            "message": None,
            "version": inventory.version or None,
            "capacity": inventory.capacity,
            "others": inventory.others,
            "nodes": list(inventory.nodes),
            "queues": list(inventory.queues),
            "features": dict(inventory.features),
            "abilities": list(able),
            "probed_at": timestamp(now),
            "conditions": _conditions(site, ConditionStatus.TRUE, "", now),
            "observed_generation": site.metadata.generation,
        }
    )


def unreachable(site: Site, message: str, now: datetime, reason: str = "") -> SiteStatus:
    """The status of a site that did not, or whose engine does not work: what was known stays known."""
    return site.status.model_copy(
        update={
            "phase": SitePhase.UNREACHABLE,
            "message": message,
            "probed_at": timestamp(now),
            "conditions": _conditions(site, ConditionStatus.FALSE, message, now, reason),
            "observed_generation": site.metadata.generation,
        }
    )


def _conditions(site: Site, status: ConditionStatus, message: str, now: datetime, reason: str = "") -> list[Condition]:
    condition = Condition(type="Ready", status=status, reason=reason, message=message)
    return set_condition(site.status.conditions, condition, timestamp(now))


def declare(shared: Shared) -> Reconciler:
    """The part that keeps engines open. Jobs are looked at after each site was looked at once."""
    informer = shared.informer(SITE)
    sites = SiteReconciler(
        store=shared.store,
        sites=informer,
        classes=shared.informer(DEVICE_CLASS),
        index=shared.index,
        engines=shared.engines,
        make_engine=shared.make_engine,
        leadership=shared.leadership,
        recorder=shared.recorder,
        look=shared.look_first("jobs"),
        opened=shared.wake.set,
        again=shared.look("sites"),
        now=shared.now,
    )

    async def ready() -> None:
        names = {record.key.name for record in informer.all()}
        shared.engines.expect(names)
        await sites.tried(names, patience=PATIENCE)

    return Reconciler(
        name="sites",
        kind=SITE,
        reconcile=sites.reconcile,
        workers=4,
        watches=(Watches(SITE, when=spec_changed), Watches(DEVICE_CLASS, when=spec_changed, keys=every(informer))),
        ready=ready,
        close=sites.close,
    )
