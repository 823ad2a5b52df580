"""Tenant: give it a uid of its own for its jobs, and clear out everything of it when it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus._kit.clock import timestamp, utcnow
from isthmus.errors import AlreadyExists, Conflict, Invalid, NotFound
from isthmus.resources.frame.meta import Condition, ConditionStatus, ObjectMeta, set_condition
from isthmus.resources.frame.states import TENANT_TRANSITIONS, TenantPhase, check_transition
from isthmus.resources.kinds import LEASE, TENANT, Kind, of_tenants
from isthmus.resources.leases import Lease, LeaseSpec
from isthmus.resources.tenants import SYSTEM_NAMESPACE, Tenant
from isthmus.runtime.controllers import DONE, Result
from isthmus.runtime.declaring import Reconciler, Watches, both, exists, spec_changed
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.storage.base import Blobs
from isthmus.store.base import Key, Query, Record, Spaces, Store

from .jobs.job_index import JobIndex
from .storage_measuring import StorageMeter
from .writing import Writer

if TYPE_CHECKING:
    from .shared import Shared

FINALIZER = "isthmus.dev/tenant"
UID_BASE = 200_000
"""First uid given to tenants: beyond people's accounts and below the ranges of user namespaces."""

HEARD_WITHIN = 1.0
"""Seconds until every API server knows that a tenant ends: what one of them accepts before that is cleared too."""


class TenantReconciler:
    """Looks after tenants."""

    def __init__(
        self,
        *,
        store: Store,
        tenants: Informer,
        index: JobIndex,
        blobs: Blobs,
        leadership: Leadership,
        storage: StorageMeter,
        spaces: Spaces | None = None,
    ) -> None:
        self._storage = storage
        self._store, self._tenants, self._index, self._blobs = store, tenants, index, blobs
        self._leadership, self._spaces = leadership, spaces
        self._writer = Writer(store, leadership, tenants)

    async def reconcile(self, key: Key) -> Result:
        """One look at one tenant."""
        record = self._tenants.get(key)
        if record is None:
            return DONE
        tenant = Tenant.model_validate(record.obj)
        if tenant.metadata.deletion_timestamp:
            return await self._remove(record, tenant)
        phase = TenantPhase.SUSPENDED if tenant.spec.suspended else TenantPhase.ACTIVE
        check_transition(TENANT_TRANSITIONS, tenant.status.phase, phase)
        status = tenant.status.model_copy(
            update={
                "phase": phase,
                "active_jobs": self._index.ledger.active(tenant.name),
                "storage": self._storage.of(tenant.name) or tenant.status.storage,
                "uid_number": tenant.status.uid_number or await self._next_uid(),
                "observed_generation": tenant.metadata.generation,
                "conditions": await self._space(tenant),
            }
        )
        finalizers = tenant.metadata.finalizers or []
        if FINALIZER not in finalizers:
            await self._writer.status(record, status, finalizers=[*finalizers, FINALIZER])
        elif status != tenant.status:
            await self._writer.status(record, status)
        return Result(requeue_after=5)

    async def _space(self, tenant: Tenant) -> list[Condition]:
        """See to its namespace, where the store has such; the conditions that follow."""
        if self._spaces is None:
            return tenant.status.conditions
        self._leadership.check()
        condition = Condition(type="Namespace", status=ConditionStatus.TRUE)
        try:
            await self._spaces.keep(tenant)
        except Invalid as error:
            condition = Condition(
                type="Namespace", status=ConditionStatus.FALSE, reason="NotOurs", message=error.message
            )
        return set_condition(tenant.status.conditions, condition, timestamp(utcnow()))

    async def _remove(self, record: Record, tenant: Tenant) -> Result:
        if FINALIZER not in (tenant.metadata.finalizers or ()):
            return DONE
        if tenant.status.phase is not TenantPhase.TERMINATING:
            status = tenant.status.model_copy(update={"phase": TenantPhase.TERMINATING})
            await self._writer.status(record, status)
            return Result(requeue_after=HEARD_WITHIN)
        left = 0
        for kind in of_tenants():
            left += await self._clear(kind, tenant.name)
        if left:
            return Result(requeue_after=0.5)
        self._leadership.check()
        await self._blobs.drop(tenant.name)
        if self._spaces is not None:
            await self._spaces.remove(tenant.name)
        kept = [name for name in tenant.metadata.finalizers or () if name != FINALIZER]
        await self._writer.metadata(record, finalizers=kept)
        return DONE

    async def _clear(self, kind: Kind, namespace: str) -> int:
        page = await self._store.list(Query(kind, namespace), limit=500)
        for record in page.records:
            if not record.obj["metadata"].get("deletionTimestamp"):
                self._leadership.check()
                try:
                    await self._store.delete(record.key, uid=record.uid)
                except NotFound:
                    continue
        return len(page.records)

    async def _next_uid(self) -> int:
        """A number no tenant ever had: a counter that only grows, changed by compare-and-swap.

        It lives in the count of an otherwise unused lease, the one kind that every store has for such things.
        """
        key = Key(LEASE.name, SYSTEM_NAMESPACE, "tenant-uids")
        try:
            record = await self._store.get(key)
        except NotFound:
            lease = Lease(metadata=ObjectMeta(name=key.name, namespace=key.namespace), spec=LeaseSpec())
            try:
                await self._store.create(LEASE, lease.to_json())
            except AlreadyExists:
                raise Conflict("another control plane is numbering tenants too") from None
            return UID_BASE
        lease = Lease.model_validate(record.obj)
        lease.spec.lease_transitions += 1
        await self._store.update(LEASE, lease.to_json())
        return UID_BASE + lease.spec.lease_transitions


def declare(shared: Shared) -> Reconciler:
    """The part that looks after tenants."""
    tenants = TenantReconciler(
        store=shared.store,
        tenants=shared.informer(TENANT),
        index=shared.index,
        blobs=shared.blobs,
        leadership=shared.leadership,
        storage=shared.storage,
        spaces=shared.spaces,
    )
    return Reconciler(
        name="tenants",
        kind=TENANT,
        reconcile=tenants.reconcile,
        workers=2,
        watches=(Watches(TENANT, when=both(exists, spec_changed)),),
    )
