"""DeviceClass: count how many there are, at which sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.kinds import DEVICE_CLASS, SITE
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.declaring import Reconciler, Watches, every, exists
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.store.base import Key, Store

from .writing import Writer

if TYPE_CHECKING:
    from .shared import Shared


class DeviceClassReconciler:
    """Counts devices."""

    def __init__(self, *, store: Store, classes: Informer, sites: Informer, leadership: Leadership) -> None:
        self._classes, self._sites = classes, sites
        self._writer = Writer(store, leadership, classes)

    async def reconcile(self, key: Key) -> Result:
        """One look at one class."""
        if (record := self._classes.get(key)) is None:
            return DONE
        device = DeviceClass.model_validate(record.obj)
        counts = {}
        for site in self._sites.all():
            capacity = site.obj["status"].get("capacity") or {}
            if count := (capacity.get("devices") or {}).get(device.name):
                counts[site.key.name] = count
        status = device.status.model_copy(update={"sites": counts, "total": sum(counts.values())})
        if status != device.status:
            await self._writer.status(record, status)
        return DONE


def declare(shared: Shared) -> Reconciler:
    """The part that counts devices."""
    informer = shared.informer(DEVICE_CLASS)
    classes = DeviceClassReconciler(
        store=shared.store, classes=informer, sites=shared.informer(SITE), leadership=shared.leadership
    )
    return Reconciler(
        name="deviceclasses",
        kind=DEVICE_CLASS,
        reconcile=classes.reconcile,
        workers=1,
        watches=(Watches(DEVICE_CLASS, when=exists), Watches(SITE, keys=every(informer))),
    )
