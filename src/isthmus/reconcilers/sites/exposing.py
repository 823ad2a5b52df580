"""Nodes of Slurm sites as Nodes of a Kubernetes cluster: shown as the site's status has them, removed when they go.

The feed is the inventory that the site's own reconciler keeps: nobody asks Slurm a second time. While the site does not
answer, what is shown stays and its heartbeats stop. Before anything is shown, the status notes where, and the site gets
a finalizer: wherever we are killed, what was shown is found and removed, also after the spec names another cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from isthmus._kit.clock import timestamp, utcnow
from isthmus._kit.durations import parse_duration
from isthmus.engines.exposing import NodeExposure, Shown
from isthmus.errors import Conflict, IsthmusError, Misconfigured
from isthmus.reconcilers.recording import Recorder
from isthmus.reconcilers.writing import Writer
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.frame.meta import Condition, ConditionStatus, set_condition
from isthmus.resources.frame.states import SitePhase
from isthmus.resources.kinds import DEVICE_CLASS, SITE
from isthmus.resources.sites import ExposedIn, KubernetesSite, Site, SiteStatus
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.declaring import Reconciler, Watches, either, every, spec_changed, status_changed
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.store.base import Key, Record, Store

if TYPE_CHECKING:
    from isthmus.reconcilers.shared import Shared

log = logging.getLogger(__name__)

FINALIZER = "isthmus.dev/exposed-nodes"
ABANDON = "isthmus.dev/abandon-nodes"
"""Annotation of a Site, `true`: its Nodes are left where they are, because their cluster is gone for good."""
CONDITION = "NodesExposed"
SOON = 5.0
REPORTED = 5
MakeExposure = Callable[[Site, ExposedIn, Callable[[], None]], NodeExposure]
"""Makes what shows a site's nodes in a cluster; before each effect it asks whether we may still act."""


@dataclass(slots=True)
class _OpenExposure:
    where: ExposedIn
    heartbeat: str
    exposure: NodeExposure


class ExposureReconciler:
    """Keeps what is shown in step with what sites have."""

    def __init__(
        self,
        *,
        store: Store,
        sites: Informer,
        classes: Informer,
        make_exposure: MakeExposure,
        leadership: Leadership,
        recorder: Recorder,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._sites, self._classes, self._recorder, self._now = sites, classes, recorder, now
        self._make, self._leadership = make_exposure, leadership
        self._writer = Writer(store, leadership, sites)
        self._open: dict[str, _OpenExposure] = {}

    async def reconcile(self, key: Key) -> Result:
        """One look at one site."""
        record = self._sites.get(key)
        if record is None:
            await self._close(key.name)
            return DONE
        site = Site.model_validate(record.obj)
        where = wanted(site)
        shown_in = site.status.exposed_in
        if where is None and shown_in is None and FINALIZER not in (site.metadata.finalizers or ()):
            return DONE
        try:
            if shown_in is not None and shown_in != where:
                if (site.metadata.annotations or {}).get(ABANDON) != "true":
                    await self._remove(site, shown_in)
                record = await self._write(record, site, None, None)
                site = Site.model_validate(record.obj)
            if where is None:
                await self._close(site.name)
                await self._let_go(record, site)
                return DONE
            record = await self._announce(record, site, where)
            return await self._show(record, Site.model_validate(record.obj), where)
        except Conflict:
            raise  # the site was changed meanwhile: looked at again
        except IsthmusError as error:
            if not self._leadership.held:
                raise
            await self._close(key.name)  # the kubeconfig is read again: it may be what has to be mended
            site = Site.model_validate(record.obj)
            await self._notify(record, site, ConditionStatus.FALSE, "Failed", failure(site, where, error.message))
            return Result(requeue_after=SOON)

    async def close(self) -> None:
        """Let go of all clusters. What is shown stays, and is found again."""
        for name in list(self._open):
            await self._close(name)

    async def _show(self, record: Record, site: Site, where: ExposedIn) -> Result:
        if site.status.phase is SitePhase.UNKNOWN:
            return DONE  # nobody has looked at it yet
        exposure = await self._exposure(site, where)
        if site.status.phase not in (SitePhase.READY, SitePhase.DISABLED):
            exposure.rest()
            reported = "the site does not answer: its nodes are kept as they were, and their heartbeats have stopped"
            await self._notify(record, site, ConditionStatus.UNKNOWN, "Kept", reported)
            return Result(requeue_after=parse_duration(site.spec.probe_interval))
        self._leadership.check()
        classes = [DeviceClass.model_validate(known.obj) for known in self._classes.all()]
        seen = await exposure.show(site.status.version or "", site.status.nodes, classes)
        status, reason, message = verdict(seen)
        await self._notify(record, site, status, reason, message)
        return Result(requeue_after=parse_duration(site.spec.probe_interval))

    async def _exposure(self, site: Site, where: ExposedIn) -> NodeExposure:
        heartbeat = (site.spec.kubernetes or KubernetesSite()).heartbeat_interval
        known = self._open.get(site.name)
        if known and (known.where, known.heartbeat) == (where, heartbeat):
            return known.exposure
        await self._close(site.name)
        exposure = self._make(site, where, self._leadership.check)
        self._open[site.name] = _OpenExposure(where, heartbeat, exposure)
        return exposure

    async def _remove(self, site: Site, where: ExposedIn) -> None:
        self._leadership.check()
        await (await self._exposure(site, where)).remove()

    async def _close(self, name: str) -> None:
        if known := self._open.pop(name, None):
            await known.exposure.close()

    async def _announce(self, record: Record, site: Site, where: ExposedIn) -> Record:
        """Note where nodes will be before there are any."""
        finalizers = site.metadata.finalizers or []
        if FINALIZER not in finalizers:
            record = await self._writer.metadata(record, finalizers=[*finalizers, FINALIZER])
        if site.status.exposed_in != where:
            record = await self._write(record, Site.model_validate(record.obj), where, None)
        return record

    async def _let_go(self, record: Record, site: Site) -> None:
        finalizers = site.metadata.finalizers or []
        if FINALIZER in finalizers:
            await self._writer.metadata(record, finalizers=[name for name in finalizers if name != FINALIZER])

    async def _write(self, record: Record, site: Site, where: ExposedIn | None, condition: Condition | None) -> Record:
        kept = [known for known in site.status.conditions if known.type != CONDITION]
        if condition is not None:
            kept = set_condition(site.status.conditions, condition, timestamp(self._now()))
        status = site.status.model_copy(update={"exposed_in": where, "conditions": kept})
        return await self._writer.status(record, status)

    async def _notify(self, record: Record, site: Site, status: ConditionStatus, reason: str, message: str) -> None:
        old = condition_of(site.status)
        if old and (old.status, old.reason, old.message) == (status, reason, message):
            return
        new = Condition(type=CONDITION, status=status, reason=reason, message=message)
        await self._write(record, site, site.status.exposed_in, new)
        if old is None or old.status != status:
            self._recorder.say(site, f"Nodes{reason}", message, warning=status is ConditionStatus.FALSE)


def no_exposure(site: Site, where: ExposedIn, allowed: Callable[[], None]) -> NodeExposure:
    """Of a control plane that knows no cluster."""
    del where, allowed
    raise Misconfigured(f"this control plane cannot show the nodes of site {site.name} in Kubernetes")


def wanted(site: Site) -> ExposedIn | None:
    """Where a site's nodes shall be shown; None: nowhere."""
    if not site.spec.expose_nodes or site.metadata.deletion_timestamp:
        return None
    spec = site.spec.kubernetes or KubernetesSite()
    return ExposedIn(kubeconfig=spec.kubeconfig, context=spec.context)


def verdict(seen: Shown) -> tuple[ConditionStatus, str, str]:
    """Status, reason and message of the condition."""
    if not seen.refused:
        return ConditionStatus.TRUE, "Shown", f"{seen.nodes} nodes"
    reported = "; ".join(seen.refused[:REPORTED])
    more = f"; and {len(seen.refused) - REPORTED} more" if len(seen.refused) > REPORTED else ""
    return (
        ConditionStatus.FALSE,
        "Refused",
        f"{seen.nodes} nodes are shown, {len(seen.refused)} are not: {reported}{more}",
    )


def failure(site: Site, where: ExposedIn | None, message: str) -> str:
    """What is reported when the cluster could not be asked."""
    if site.status.exposed_in is not None and site.status.exposed_in != where:
        return (
            f"nodes cannot be removed from the cluster of {site.status.exposed_in.kubeconfig or 'Isthmus'}: {message}. "
            f"If it is gone for good: kubectl annotate site {site.name} {ABANDON}=true"
        )
    return message


def condition_of(status: SiteStatus) -> Condition | None:
    """What was reported last."""
    return next((known for known in status.conditions if known.type == CONDITION), None)


def declare(shared: Shared) -> Reconciler:
    """The part that shows the nodes of sites in clusters."""
    informer = shared.informer(SITE)
    exposures = ExposureReconciler(
        store=shared.store,
        sites=informer,
        classes=shared.informer(DEVICE_CLASS),
        make_exposure=shared.make_exposure,
        leadership=shared.leadership,
        recorder=shared.recorder,
        now=shared.now,
    )
    nodes_changed = status_changed("phase", "version", "nodes")
    return Reconciler(
        name="exposures",
        kind=SITE,
        reconcile=exposures.reconcile,
        workers=2,
        watches=(
            Watches(SITE, when=either(spec_changed, nodes_changed)),
            Watches(DEVICE_CLASS, when=spec_changed, keys=every(informer)),
        ),
        after=("sites",),
        close=exposures.close,
    )
