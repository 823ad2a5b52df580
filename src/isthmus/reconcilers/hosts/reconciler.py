"""Host: look at a machine through its BMC, and bring its power to what is wanted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from isthmus._kit.durations import parse_duration
from isthmus.errors import HostRefused, HostUnavailable, Misconfigured
from isthmus.hosts.base import HostDriver
from isthmus.reconcilers.writing import Writer
from isthmus.resources.frame.states import HOST_TRANSITIONS, HostPhase, check_transition
from isthmus.resources.hosts import Host, HostStatus, RedfishHost
from isthmus.resources.kinds import HOST
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.declaring import Reconciler, Watches, spec_changed
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.store.base import Key, Record, Store

from . import powering

if TYPE_CHECKING:
    from isthmus.reconcilers.shared import Shared

MakeHostDriver = Callable[[Host], HostDriver]
CHANGING_SECONDS = 2.0
"""How soon a machine is looked at again whose power changes."""


def no_hosts(host: Host) -> HostDriver:
    """Of a control plane that reaches no machines."""
    raise Misconfigured(f"this control plane cannot reach the BMC of {host.name}")


class HostReconciler:
    """Keeps an eye on machines."""

    def __init__(
        self,
        *,
        store: Store,
        hosts: Informer,
        make_driver: MakeHostDriver,
        leadership: Leadership,
        now: Callable[[], datetime],
    ) -> None:
        self._hosts, self._make_driver, self._now = hosts, make_driver, now
        self._writer, self._leadership = Writer(store, leadership, hosts), leadership
        self._drivers: dict[str, tuple[RedfishHost, HostDriver]] = {}

    async def reconcile(self, key: Key) -> Result:
        """One look at one machine."""
        record = self._hosts.get(key)
        if record is None or record.obj["metadata"].get("deletionTimestamp"):
            await self._drop(key.name)
            return DONE
        host = Host.model_validate(record.obj)
        interval = parse_duration(host.spec.probe_interval)
        try:
            driver = await self._driver(host)
            decision = powering.decide(host, await driver.look(), self._now())
            await self._note(record, host, decision.status)
            if decision.reset is not None:
                self._leadership.check()
                await driver.reset(decision.reset)
        except (HostUnavailable, HostRefused, Misconfigured) as error:
            await self._drop(key.name)  # its credentials or its certificate may be others the next time
            record = self._hosts.get(key) or record
            host = Host.model_validate(record.obj)
            await self._note(record, host, powering.unreachable(host, error.message, self._now()))
            return Result(requeue_after=interval)
        changing = decision.status.phase is HostPhase.CHANGING
        return Result(requeue_after=min(interval, CHANGING_SECONDS) if changing else interval)

    async def close(self) -> None:
        """Let go of all connections."""
        for name in list(self._drivers):
            await self._drop(name)

    async def _driver(self, host: Host) -> HostDriver:
        known = self._drivers.get(host.name)
        if known is None or known[0] != host.spec.redfish:
            await self._drop(host.name)
            known = self._drivers[host.name] = (host.spec.redfish, self._make_driver(host))
        return known[1]

    async def _drop(self, name: str) -> None:
        if known := self._drivers.pop(name, None):
            await known[1].close()

    async def _note(self, record: Record, host: Host, status: HostStatus) -> None:
        check_transition(HOST_TRANSITIONS, host.status.phase, status.phase)
        if status.model_copy(update={"probed_at": host.status.probed_at}) != host.status:
            await self._writer.status(record, status)


def declare(shared: Shared) -> Reconciler:
    """The part that keeps an eye on machines."""
    hosts = HostReconciler(
        store=shared.store,
        hosts=shared.informer(HOST),
        make_driver=shared.make_host,
        leadership=shared.leadership,
        now=shared.now,
    )
    return Reconciler(
        name="hosts",
        kind=HOST,
        reconcile=hosts.reconcile,
        workers=16,
        watches=(Watches(HOST, when=spec_changed),),
        close=hosts.close,
    )
