"""Following jobs: one watch of the store for everybody who waits for a job to go on.

The watch runs while somebody follows. When it had to begin anew it may have missed something, so that every
follower is asked to read its job again; nobody concludes anything from silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from isthmus.errors import NotFound, Unavailable
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import JOB
from isthmus.store.base import Change, EventType, Key, Record, Store
from isthmus.store.feeding import Feed


class FollowedJob:
    """A job as it changes, for one follower."""

    def __init__(self, store: Store, record: Record) -> None:
        self.key = record.key
        self._store = store
        self._uid = record.uid
        self._version = record.version
        self._job: Job = Job.model_validate(record.obj)
        self._gone = False
        self._stale = True
        self._news = asyncio.Event()

    @property
    def gone(self) -> bool:
        """Whether it was deleted."""
        return self._gone

    async def now(self) -> Job:
        """The job as it is now, or was last; raises StoreUnavailable."""
        # Cleared before the reading: what changes during it is news again.
        self._news.clear()
        if self._stale:
            self._stale = False
            try:
                self.notify(await self._store.get(self.key))
            except NotFound:
                self._gone = True
            except Unavailable:
                self._stale = True
                raise
        return self._job

    async def changed(self) -> None:
        """Return when the job may differ from what `now` gave."""
        await self._news.wait()

    def doubt(self) -> None:
        """Something may have been missed."""
        self._stale = True
        self._news.set()

    def notify(self, record: Record, *, deleted: bool = False) -> None:
        """A version of the job, in any order."""
        if deleted or record.uid != self._uid:
            # A later job of the same name is another job.
            self._gone = True
        elif record.version > self._version:
            self._version = record.version
            self._job = Job.model_validate(record.obj)
        self._news.set()


class JobFollowers:
    """Everybody who follows a job."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followed: dict[Key, set[FollowedJob]] = {}
        self._pump: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return sum(len(followed) for followed in self._followed.values())

    @asynccontextmanager
    async def follow(self, record: Record) -> AsyncIterator[FollowedJob]:
        """Hear of every change of a job, from this version on."""
        followed = FollowedJob(self._store, record)
        self._followed.setdefault(record.key, set()).add(followed)
        if self._pump is None:
            feed = Feed(self._store, JOB, replace=lambda _: self._doubt(), change=self._notify, listing=False)
            self._pump = asyncio.create_task(feed.run(), name="jobs followed")
        try:
            yield followed
        finally:
            self._followed[record.key].discard(followed)
            if not self._followed[record.key]:
                del self._followed[record.key]
            if not self._followed and self._pump is not None:
                pump, self._pump = self._pump, None
                pump.cancel()
                await asyncio.wait([pump])

    def _doubt(self) -> None:
        for followed in self._followed.values():
            for one in followed:
                one.doubt()

    def _notify(self, change: Change) -> None:
        if change.record is not None:
            for followed in self._followed.get(change.record.key, ()):
                followed.notify(change.record, deleted=change.type is EventType.DELETED)
