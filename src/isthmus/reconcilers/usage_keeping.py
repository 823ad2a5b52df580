"""Keeping usage: before a job goes, what its runs used is added to the records of its tenant.

Whoever removes a job asks `settled` first. Runs that are not in a record yet are added together, a few writes a second
for each tenant however many jobs go, and then the job is looked at again. A write is compared with the version that it
was decided by, and always goes to the last part of its month: of two control planes, or of a write whose answer was
lost and its repetition, only one can succeed. Runs whose jobs are gone become part of the sums a moment later, for the
sake of those who read the jobs before and the records after.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from isthmus.errors import AlreadyExists, Conflict, IsthmusError, NotFound
from isthmus.resources.frame.meta import ObjectMeta
from isthmus.resources.jobs import uid_of_run
from isthmus.resources.kinds import JOB, TENANT, USAGE_RECORD
from isthmus.resources.tenants import SYSTEM_NAMESPACE
from isthmus.resources.usage_records import (
    MOST_BYTES,
    TENANT_LABEL,
    UsageRecord,
    UsageRecordSpec,
    size_of,
    with_runs,
)
from isthmus.resources.work.run_accounts import RunAccount, UsageAccount, accounts_of
from isthmus.runtime.declaring import Background, Observes
from isthmus.runtime.informers import Informer
from isthmus.runtime.leading import Leadership
from isthmus.store.base import Key, Record, Store

if TYPE_CHECKING:
    from isthmus.reconcilers.shared import Shared

log = logging.getLogger(__name__)

EVERY = 0.1
"""Seconds in which runs are gathered for one write."""
GRACE = 5.0
"""Seconds for which a run stays by itself after its job is gone."""
_ROOM = 8192
"""A record with less room than this is full."""


class UsageKeeper:
    """Adds what runs used to the records of their tenants."""

    def __init__(
        self,
        store: Store,
        records: Informer,
        tenants: Informer,
        jobs: Informer,
        leadership: Leadership,
        look: Callable[[Key], None],
        now: Callable[[], datetime],
    ) -> None:
        self._store, self._records, self._tenants, self._jobs = store, records, tenants, jobs
        self._leadership, self._look, self._now = leadership, look, now
        self._wake = asyncio.Event()
        self._pending: dict[str, tuple[Key, RunAccount]] = {}
        self._settling: dict[str, tuple[Key, Key]] = {}
        """Runs that are in records by themselves: the record, and the job."""
        self._parts: dict[tuple[str, str], dict[int, Key]] = {}
        self._gone: dict[str, float] = {}

    def settled(self, record: Record) -> bool:
        """Whether all that the job's runs used is in records; if not, it is put there and the job looked at again."""
        missing = [e for e in accounts_of(record.obj, self._now()) if e.run not in self._settling]
        for entry in missing:
            self._pending[entry.run] = (record.key, entry)
        if missing:
            self._wake.set()
        return not missing

    def changed(self, old: Record | None, new: Record | None) -> None:
        """The informer's handler: which runs are in records by themselves, and which parts there are."""
        if old is not None:
            spec = old.obj["spec"]
            for run in spec.get("settling") or ():
                self._settling.pop(run, None)
            if new is None:
                self._parts.get((spec.get("tenantUid", ""), spec["month"]), {}).pop(spec.get("part", 0), None)
        if new is not None:
            spec = new.obj["spec"]
            self._parts.setdefault((spec.get("tenantUid", ""), spec["month"]), {})[spec.get("part", 0)] = new.key
            for run, row in (spec.get("settling") or {}).items():
                self._settling[run] = (new.key, Key(JOB.name, spec["tenant"], row["job"]))
            if self._settling:
                self._wake.set()
        for record in (old, new):
            if record is not None:
                record.shrink()

    async def run(self) -> None:
        """Write what is asked for, until cancelled."""
        self._wake.set()
        while True:
            try:
                async with asyncio.timeout(GRACE if self._settling or self._pending else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(EVERY)
            self._wake.clear()
            await self._add()
            await self._tidy()

    async def _add(self) -> None:
        groups: dict[tuple[str, str], list[str]] = {}
        for run, (job, entry) in list(self._pending.items()):
            if run in self._settling:
                self._done(run)
            else:
                groups.setdefault((job.namespace, entry.account.day[:7]), []).append(run)
        for (tenant, month), runs in groups.items():
            try:
                await self._write(tenant, month, runs)
            except IsthmusError as error:
                log.info("usage not written", extra={"tenant": tenant, "error": str(error)})
        if self._pending:
            self._wake.set()

    async def _write(self, tenant: str, month: str, runs: list[str]) -> None:
        known = self._tenants.get(Key(TENANT.name, "", tenant))
        uid = known.uid if known else ""
        parts = self._parts.get((uid, month), {})
        part = max(parts, default=0)
        record = self._records.get(parts[part]) if parts else None
        if record is not None and MOST_BYTES - len(record.data) < _ROOM:
            record, part = None, part + 1
        room = MOST_BYTES - (len(record.data) if record else 0)
        added = self._fitting(runs, room)
        if record is not None:
            old = UsageRecord.model_validate(record.obj)
            await self._put(record, with_runs(old.spec, added, self._over(old.spec)))
        else:
            spec = UsageRecordSpec(tenant=tenant, tenant_uid=uid, month=month, part=part)
            name = f"{uid or tenant}-{month}-{part}"
            meta = ObjectMeta(name=name, namespace=SYSTEM_NAMESPACE, labels={TENANT_LABEL: tenant})
            made = UsageRecord(metadata=meta, spec=with_runs(spec, added))
            self._leadership.check()
            try:
                self._records.note(await self._store.create(USAGE_RECORD, made.to_json()))
            except AlreadyExists:
                await self._learn(Key(USAGE_RECORD.name, SYSTEM_NAMESPACE, name))
        for run in added:
            if run in self._settling:
                self._done(run)

    def _fitting(self, runs: list[str], room: int) -> Mapping[str, tuple[str, UsageAccount]]:
        """As many of the runs as there is room for; at least one."""
        found: dict[str, tuple[str, UsageAccount]] = {}
        for run in runs:
            job, entry = self._pending[run]
            room -= size_of(entry, job.name)
            if room < 0 and found:
                break
            found[run] = (job.name, entry.account)
        return found

    async def _put(self, record: Record, spec: UsageRecordSpec) -> None:
        self._leadership.check()
        try:
            written = await self._store.update(USAGE_RECORD, {**record.obj, "spec": spec.to_json()})
        except Conflict:
            await self._learn(record.key)
            return
        self._records.note(written)

    async def _learn(self, key: Key) -> None:
        """Somebody else was faster, or we were and did not hear of it."""
        with suppress(NotFound):
            self._records.learn(await self._store.get(key))

    def _done(self, run: str) -> None:
        if (found := self._pending.pop(run, None)) is not None:
            self._look(found[0])

    async def _tidy(self) -> None:
        """Make runs whose jobs are gone part of the sums."""
        now, stale = asyncio.get_running_loop().time(), dict[Key, None]()
        for run, (record, job) in self._settling.items():
            known = self._jobs.get(job)
            if known is not None and _identity(known) == uid_of_run(run):
                self._gone.pop(run, None)
            elif now - self._gone.setdefault(run, now) >= GRACE:
                stale[record] = None
        for key in stale:
            if (found := self._records.get(key)) is None:
                continue
            old = UsageRecord.model_validate(found.obj)
            try:
                await self._put(found, with_runs(old.spec, {}, self._over(old.spec)))
            except IsthmusError as error:
                log.info("usage not written", extra={"record": key.name, "error": str(error)})
        for run in [run for run in self._gone if run not in self._settling]:
            del self._gone[run]

    def _over(self, spec: UsageRecordSpec) -> set[str]:
        now = asyncio.get_running_loop().time()
        return {run for run in spec.settling if now - self._gone.get(run, now) >= GRACE}


def _identity(record: Record) -> str:
    return (record.obj.get("status") or {}).get("identity") or record.uid


def declare(shared: Shared) -> Background:
    """The part that keeps what was used by runs whose jobs go."""
    usage = shared.usage
    return Background(name="usage", run=usage.run, observes=(Observes(USAGE_RECORD, usage.changed),))
