"""The Slurm engine: the contract, put together from its parts.

Readers are served from memory: `observe` looks at what the last snapshot and the records say. Only submitting,
cancelling and collecting reach the cluster at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from isthmus._kit.crashpoints import step_async
from isthmus._kit.locks import KeyedLocks
from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import (
    Capabilities,
    EndReason,
    FilePart,
    FileSink,
    FileSource,
    FolderListing,
    Inventory,
    LogReader,
    Observation,
    Run,
    RunState,
    Stream,
)
from isthmus.engines.metering import Power
from isthmus.engines.news import News
from isthmus.engines.slurm.batch import scripts, submissions
from isthmus.engines.slurm.cluster.inventories import ClusterFacts, inventory
from isthmus.engines.slurm.cluster.partitions import Submitter, choose
from isthmus.engines.slurm.cluster.persons import Persons
from isthmus.engines.slurm.containers import launch_texts
from isthmus.engines.slurm.containers.container_lines import ImageRoot
from isthmus.engines.slurm.containers.image_stores import ImageStore
from isthmus.engines.slurm.containers.person_environments import PersonEnvironments
from isthmus.engines.slurm.containers.readying import ClusterImages
from isthmus.engines.slurm.files import records
from isthmus.engines.slurm.files.base import LogFile, RunFiles
from isthmus.engines.slurm.files.logs import LogReaders
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.observing.mailbox import Mailbox, wanted_of
from isthmus.engines.slurm.observing.settling import KnownRun, RunSettler
from isthmus.engines.slurm.observing.snapshots import JobSnapshot, JobWatcher
from isthmus.engines.slurm.transports.base import Budget, SlurmTransport
from isthmus.engines.slurm.transports.routing import BestWays
from isthmus.errors import EngineRefused, IsthmusError, NotFound, SiteUnavailable, Superseded
from isthmus.metrics import count_task_failure
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.work.engine_options import SlurmOptions

from .abilities import WITH_IMAGES, WITHOUT_IMAGES
from .facts import SlurmJob, SlurmNode, SlurmPartition
from .reading import SlurmReader
from .sending import NOTE_DELAY, NOTE_SECONDS, AlreadyBegun, as_it_is, pick, send
from .settings import SlurmSettings

log = logging.getLogger(__name__)


class SlurmEngine:
    """Runs jobs on a Slurm cluster."""

    def __init__(
        self, settings: SlurmSettings, transport: SlurmTransport, files: RunFiles, budget: Budget, images: ImageStore
    ) -> None:
        self._settings, self._transport, self._files, self._budget = settings, transport, files, budget
        self._active: dict[str, KnownRun] = {}
        self._over: dict[str, RunRecord | None] = {}
        self._watcher = JobWatcher(
            transport, settings.poll_seconds, self._digest, lambda: wanted_of(self._active.values())
        )
        self._settler = RunSettler(transport, files, self._watcher.fresh)
        self._mailbox = Mailbox(files, self._watcher, self._active, self._digest, self._take_its_word)
        self._digesting = asyncio.Lock()
        self._news = News()
        self.tasks = SupervisedTasks(failed=count_task_failure)
        self._logs = LogReaders(files, settings.log_seconds, self.tasks)
        self._gres: dict[str, str] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._nodes: Sequence[SlurmNode] = ()
        self._partitions: Sequence[SlurmPartition] = ()
        self._chosen: dict[Hashable, tuple[str, ...]] = {}
        self._untold, self._tidied = set[str](), set[str]()
        self._submitting = KeyedLocks()
        self._persons = Persons(settings, transport)
        self._images = ClusterImages(settings, images, self, self.tasks)
        self._environments = PersonEnvironments(settings, images)

    @property
    def capabilities(self) -> Capabilities:
        """What it can do by itself: images need a runtime on the nodes."""
        return WITHOUT_IMAGES if self._images.none else WITH_IMAGES

    async def open(self) -> None:
        """Connect, find the records, and take the first snapshot."""
        await self._transport.open()
        await self._files.open()
        self._settler.facts = await self._transport.facts()
        active, over = await self._files.list_records()
        self._over, found = dict.fromkeys(over), await self._files.read_records(active)
        for run_id in active:
            if run_id in found:
                self._take_up(run_id, found[run_id])
            else:
                await self._load(run_id)  # it moved meanwhile
        late = [record for run_id in active if (record := self._over.get(run_id)) is not None]
        snapshot = await self._watcher.fresh()
        await self._digest(snapshot)
        await self._settler.recall(self._active.values())
        self._end_ghosts(await self._settler.resume(late, snapshot))
        self.tasks.start("slurm-watcher", self._watcher.run)
        self.tasks.start("slurm-late-accounting", lambda: self._settler.late.run(self._corrected))
        self.tasks.start("slurm-lost-runs", lambda: self._settler.lost.run(self._corrected))
        self.tasks.start("slurm-mailbox", self._mailbox.run)
        self._watcher.watch(bool(self._active))

    async def close(self) -> None:
        """Let go. Runs go on."""
        await self.tasks.finish("slurm-note", NOTE_SECONDS)
        await self.tasks.close()
        await self._settler.close()
        await self._images.close()
        self._news.close()
        await self._logs.close()
        await self._files.close()
        await self._transport.close()

    async def probe(self, classes: Sequence[DeviceClass]) -> Inventory:
        """Nodes, partitions and queues; the classes are remembered for later runs."""
        if not await self._files.ours():
            raise Superseded("Another control plane has opened the site's folder since; it is opened anew.")
        self._gres = {c.name: c.spec.slurm.gres for c in classes if c.spec.slurm is not None}
        self._classes = {c.name: c for c in classes}
        power = {c.name: c.spec.power for c in classes if c.spec.power is not None}
        self._settler.power = {name: Power(model.idle_watts, model.busy_watts) for name, model in power.items()}
        self._settler.facts = await self._transport.facts()
        self._nodes = await self._transport.nodes()
        self._partitions = await self._transport.partitions()
        self._chosen.clear()
        snapshot = self._watcher.latest
        if snapshot is None or time.monotonic() - snapshot.begun > self._settings.poll_seconds * 2:
            snapshot = await self._watcher.fresh()
        seen = ClusterFacts(
            datetime.now(UTC), self._settler.facts, self._nodes, self._partitions, snapshot.jobs, self._gres
        )
        chosen = self._settings.transport
        way = str(self._transport) if isinstance(self._transport, BestWays) else chosen
        found = inventory(seen, transport=way, budget=self._budget.reported())
        return replace(found, features={**found.features, **self._images.describe()})

    # Submitting

    def check(self, run: Run) -> None:
        """Refuse what can never work here."""
        if not submissions.RUN_ID.fullmatch(run.id):
            raise EngineRefused(f"{run.id!r} is not the id of a run: it must be a uid, a dot and a number.")
        if run.image is not None:
            self._images.check(run, self._persons.user_of(run))
        if not run.command and run.script is None:
            raise EngineRefused("There is neither a command nor a script to run.")
        words = [*run.command, *run.args, *run.env, *run.env.values(), run.script or ""]
        if any("\0" in word for word in words):
            raise EngineRefused("A word of the command, script or environment contains a NUL character. Remove it.")
        self._persons.user_of(run)
        self._partitions_for(run)

    def _partitions_for(self, run: Run) -> tuple[str, ...]:
        gres = submissions.gres_of(run, self._gres)
        options = run.section(SlurmOptions)
        account = options.account or self._settings.account
        access = Submitter(account, options.qos or "", self._persons.groups_of(run))
        # Jobs come by the hundred and differ in nothing of this; what the cluster is, is new with each look at it.
        key = (options.partition, run.time_limit, run.nodes, run.memory_bytes, gres, access)
        if (known := self._chosen.get(key)) is None:
            known = choose(
                run, self._partitions, self._nodes, allowed=self._settings.partitions, gres=gres, access=access
            )
            self._chosen[key] = known
        return known

    async def submit(self, run: Run, files: FileSource | None = None) -> Observation:
        """Send the run to Slurm, or find it if it was sent before."""
        async with self._submitting.hold(run.id):
            return await self._submit(run, files)

    async def _submit(self, run: Run, files: FileSource | None) -> Observation:
        if (seen := await self.observe(run.id)) is not None and seen.state is not RunState.UNKNOWN:
            return seen
        await self._persons.learn_groups(run, self._partitions)
        self.check(run)
        known = self._active.get(run.id)
        if known is None:
            known = await self._send_new(run, files)
            if known is None:  # another was quicker, or it was barred
                if (seen := await self.observe(run.id)) is not None:
                    return seen
                known = self._active.get(run.id)
                if known is None:
                    raise SiteUnavailable(f"Run {run.id} is being cancelled by another control plane")
        if known.unsure:
            # It was meant to be sent before: Slurm may have it, although nobody heard of that.
            await self._search(known)
        if known.record.job is None:
            await self._send(run, known.record.user, partial(as_it_is, known))
        self._watcher.watch(True)
        if (seen := known.observation()) is None or (known.job is None and seen.state is not RunState.ENDED):
            # It was sent before and Slurm does not show it: until it is settled what became of it, nothing is sent.
            raise SiteUnavailable(seen.message if seen else f"Run {run.id} is being looked for")
        return seen

    async def _send_new(self, run: Run, files: FileSource | None) -> KnownRun | None:
        """Send a run that has no record yet; None if it has one after all."""
        image, run = None, await self._environments.ready(run, self._persons.user_of(run))
        if run.image is not None:
            image, files = await self._images.ready(run, self._persons.user_of(run), files, self._classes)
        begin = partial(self._begin, run, files, image)
        try:
            if files is not None:  # which may take minutes
                begin = partial(as_it_is, await begin())
            return await self._send(run, self._persons.user_of(run), begin)
        except AlreadyBegun:
            return None

    async def _begin(self, run: Run, files: FileSource | None, image: ImageRoot | None) -> KnownRun:
        """Stage the folder and make the record; raises AlreadyBegun if there is one."""
        user = self._persons.user_of(run)
        folder = self._files.folder(run.id)
        devices = {name: self._gres[name] for name in run.devices}
        place = self._environments.folder(run, user)
        launch = launch_texts.launch_files(run, folder, user, devices, self._classes, self._settler, image, place)
        record = RunRecord(run.id, user, time.time(), None, run.separate_streams, run.milli_cpus, devices)
        record = record if image is None else replace(record, image=image.digest)
        if not await self._files.begin(run.id, user, launch, files, records.dump(record)):
            await self._load(run.id)
            raise AlreadyBegun
        known = KnownRun(record, unsure=False)
        self._active[run.id] = known
        return known

    async def _search(self, known: KnownRun) -> None:
        """Look for a job with this run's mark, among all jobs and in the accounting; many runs share one question."""
        snapshot = await self._watcher.fresh(known.unsure_since)
        if job := pick(known, snapshot):
            await self._adopt(known, job)
            return
        if (row := await self._settler.search(known, known.unsure_since)) is not None:
            # The accounting has it and slurmctld has not: it is over, or was lost; the next snapshot will show.
            comment = submissions.comment_of(known.run_id)
            await self._adopt(known, SlurmJob(row.id, row.states, user=row.user, comment=comment))

    async def _send(self, run: Run, user: str, begin: Callable[[], Awaitable[KnownRun]]) -> KnownRun:
        try:
            known = await send(self._transport, self._watcher, self._wanted(run, user), begin)
        except EngineRefused:
            if self._active.pop(run.id, None) is not None:
                await self._files.drop_record(run.id)
                await self._files.remove(run.id, user)
            raise
        # Nobody has to wait for the note: without it, Slurm is searched for the run's mark, as after a lost reply.
        self.tasks.spawn("slurm-note", partial(self._note, known), of=run.id)
        return known

    def _wanted(self, run: Run, user: str) -> submissions.Submission:
        folder = self._files.folder(run.id)
        return submissions.make(
            run,
            user=user,
            script=scripts.submitted(folder),
            folder=folder,
            options=run.section(SlurmOptions),
            gres=submissions.gres_of(run, self._gres),
            partitions=self._partitions_for(run),
            account=self._settings.account,
            environment=self._settings.job_environment,
            after=self._awaited(run),
        )

    async def _note(self, known: KnownRun) -> None:
        """Write down the number under which Slurm has the run; after those who wait for the run to be shown as sent."""
        await asyncio.sleep(NOTE_DELAY)
        if known.record.final is None:
            try:
                await self._settler.note(known)
            except IsthmusError as error:
                log.warning("the number of a job is not written", extra={"run": known.run_id, "error": str(error)})

    def _awaited(self, run: Run) -> dict[str, int]:
        """The numbers of the runs it waits for. Slurm takes a number that it has forgotten for one that ended well."""
        numbers = {}
        for other in run.after:
            known = self._active.get(other.run_id)
            if known is None or known.job is None or known.record.job is None:
                raise SiteUnavailable(f"run {other.run_id}, which it waits for, is not in Slurm's queue any more")
            numbers[other.run_id] = known.record.job
        return numbers

    async def _adopt(self, known: KnownRun, job: SlurmJob) -> None:
        """Slurm has the run under this number."""
        known.adopt(job)
        await self._settler.note(known)

    # Watching

    async def _load(self, run_id: str) -> KnownRun | None:
        """Find a run again by its record."""
        content = await self._files.read_record(run_id)
        return None if content is None else self._take_up(run_id, content)

    def _take_up(self, run_id: str, content: bytes) -> KnownRun | None:
        record = records.load(run_id, content)
        if record.final is not None:
            self._over[run_id] = record
            return None
        self._active[run_id] = KnownRun(record)
        return self._active[run_id]

    async def _digest(self, snapshot: JobSnapshot) -> None:
        """Compare what is known with a snapshot; settle what ended; report what changed. One at a time."""
        async with self._digesting:
            await self._digest_one(snapshot)

    async def _digest_one(self, snapshot: JobSnapshot) -> None:
        changed, ended, absent = set[str](), list[KnownRun](), list[KnownRun]()
        covered = [known for known in self._active.values() if snapshot.covers(known.record.job)]
        for known in covered:
            try:
                if (job := pick(known, snapshot)) is None:
                    if known.record.job is not None and known.since < snapshot.begun and not snapshot.hinted:
                        absent.append(known)
                elif await self._compare(known, job):
                    changed.add(known.run_id)
            except IsthmusError as error:  # of one run: the others go on
                log.warning("a run could not be looked at", extra={"run": known.run_id, "error": str(error)})
            except Exception as error:
                count_task_failure("slurm-compare")
                log.error("a run cannot be understood", exc_info=error, extra={"run": known.run_id})
        changed |= await self._settler.missing(absent)
        for known in covered:
            if known.job is not None and known.record.job and known.job.meaning.state is RunState.ENDED:
                ended.append(known)
        changed -= {known.run_id for known in ended}
        changed |= await self._settler.settle(ended, snapshot)
        self._move_over()
        if due := self._due(changed):
            self._notify(due)
        running = any(known.job and known.job.meaning.state is RunState.RUNNING for known in self._active.values())
        self._watcher.watch(bool(self._active), running=running)

    async def _take_its_word(self, known: KnownRun) -> None:
        async with self._digesting:
            if await self._settler.take_its_word(known):
                self._end_ghosts([known.record])
        self._notify_over(known.run_id)

    def _end_ghosts(self, over: Sequence[RunRecord]) -> None:
        for record in over:
            self.tasks.spawn("slurm-ghost", partial(self._settler.end_ghost, record), of=record.run_id)

    def _due(self, changed: set[str]) -> set[str]:
        """What is reported now; each report is a write. Why runs wait follows after a burst, which would wait for it.

        That a run runs which has just said that it ends follows only if Slurm does not end it soon.
        """
        changed |= self._untold
        in_burst, known = self._watcher.in_burst, self._active
        self._untold = {
            run_id
            for run_id in changed
            if run_id in known and ((in_burst and known[run_id].waits) or self._mailbox.is_ending(run_id))
        }
        return changed - self._untold

    async def _compare(self, known: KnownRun, job: SlurmJob) -> bool:
        """Take over what a snapshot shows of a run; whether that is news."""
        known.missing = 0
        news = known.take(job, datetime.now(UTC))
        if known.record.job is None:
            await self._adopt(known, job)
        if known.record.devices and job.meaning.state is RunState.RUNNING:
            await self._settler.units(known)
        return news

    def _move_over(self) -> None:
        for run_id in [run_id for run_id, known in self._active.items() if known.record.final is not None]:
            self._over[run_id] = self._active.pop(run_id).record

    def _notify_over(self, run_id: str) -> None:
        self._move_over()
        self._notify({run_id})

    def _corrected(self, record: RunRecord) -> None:
        self._over[record.run_id] = record
        self._notify({record.run_id})

    def _notify(self, run_ids: set[str]) -> None:
        self._news.notify(run_ids)
        for run_id in run_ids:
            record = self._over.get(run_id)
            if record is not None:
                for stream in Stream:
                    self._logs.wake(LogFile(run_id, record.user, stream.value))

    async def observe(self, run_id: str) -> Observation | None:
        """What is known of a run."""
        if known := self._active.get(run_id):
            return known.observation()
        record = await self._ended(run_id)
        return record.final if record else None

    def records(self) -> dict[str, RunRecord | None]:
        """All runs that are known; None: over, and not looked at since."""
        return {**self._over, **{run_id: known.record for run_id, known in self._active.items()}}

    async def _ended(self, run_id: str) -> RunRecord | None:
        """The record of a run that is over."""
        if (known := self._active.get(run_id)) and known.record.final is not None:
            self._move_over()
        if run_id not in self._over:
            return None
        record = self._over[run_id]
        if record is None:
            content = await self._files.read_record(run_id)
            record = self._over[run_id] = records.load(run_id, content or b"")
        return record

    def changes(self) -> AsyncIterator[set[str]]:
        """Ids of runs that changed, as snapshots show it."""
        return self._news.subscribe(lambda: set(self._active) | set(self._over))

    # Ending

    async def cancel(self, run_id: str, *, grace: float = 5.0) -> None:
        """Have Slurm end the job; it waits the site's KillWait before it kills. An unknown run is barred."""
        del grace
        known = self._active.get(run_id)
        if known is None:
            if run_id not in self._over and submissions.RUN_ID.fullmatch(run_id):
                known = await self._bar(run_id)
            if known is None:
                return
        if not known.record.cancelled and not await self._note_cancelled(known):
            self._notify_over(run_id)
            return
        if known.record.job is None:
            await self._files.bar(run_id, known.record.user)
            await self._search(known)
        if known.record.job is None:
            final = Observation(RunState.ENDED, reason=EndReason.CANCELLED, message="cancelled before it was submitted")
            await self._settler.finish(known, final)
            self._notify_over(run_id)
            return
        await step_async(self._transport.cancel, known.record.job, known.record.user)
        self._watcher.nudge()

    async def _note_cancelled(self, known: KnownRun) -> bool:
        known.record = replace(known.record, cancelled=True)
        try:
            return await self._settler.note(known)
        except BaseException:
            known.record = replace(known.record, cancelled=False)  # the next one to ask writes it down
            raise

    async def hold(self, run_id: str) -> None:
        """Have Slurm hold a run that waits."""
        await self._hold(run_id, True)

    async def release(self, run_id: str) -> None:
        """Let a run go that we had Slurm hold."""
        known = self._active.get(run_id)
        if known is not None and known.record.held:
            await self._hold(run_id, False)

    async def _hold(self, run_id: str, held: bool) -> None:
        known = self._active.get(run_id)
        if known is None or known.record.job is None or known.job is None:
            return
        if known.job.meaning.state is not RunState.QUEUED:
            return
        # Noted first when holding and last when releasing: what may be held is known to be ours.
        if held and not await self._note_held(known, True):
            return
        await step_async(self._transport.hold, known.record.job, known.record.user, held)
        if not held:
            await self._note_held(known, False)
        self._watcher.nudge()

    async def _note_held(self, known: KnownRun, held: bool) -> bool:
        known.record = replace(known.record, held=held)
        return await self._settler.note(known)

    async def _bar(self, run_id: str) -> KnownRun | None:
        """Make the record of a run that must never begin; the run itself if somebody was about to submit it."""
        final = Observation(RunState.ENDED, reason=EndReason.CANCELLED, message="cancelled before it was submitted")
        record = RunRecord(run_id, final=final, cancelled=True)
        if await self._files.create_record(run_id, records.dump(record)):
            await self._files.finish_record(run_id, records.dump(record))
            self._over[run_id] = record
            return None
        if (known := await self._load(run_id)) is None and run_id not in self._over:
            raise SiteUnavailable(f"Run {run_id} is being cancelled by another control plane")
        return known

    async def collect(self, run_id: str, patterns: Sequence[str], sink: FileSink) -> list[str]:
        """Bring back the files that match."""
        record = await self._known(run_id)
        if record.final is None:
            raise EngineRefused(f"Run {run_id} has not ended; its files are collected after the end.")
        if not patterns:
            return []
        try:
            return await self._files.collect(run_id, record.user, patterns, sink, self._settings.max_output_bytes)
        except FileNotFoundError:
            return [f"The working folder of run {run_id} is no longer there."]

    async def tidy(self, run_id: str) -> None:
        """Free the working folder of a run that is over; once, although it is asked for at every look at its end."""
        if run_id not in self._tidied and (record := await self._ended(run_id)) and record.user:
            await self._files.tidy(run_id, record.user)
            self._tidied.add(run_id)

    async def forget(self, run_id: str) -> None:
        """Remove everything of a run that is over."""
        record = await self._ended(run_id)
        if record is None:
            return
        self._settler.late.drop(run_id)
        self._settler.lost.drop(run_id)
        if record.user:
            await self._files.remove(run_id, record.user)
        await self._files.drop_record(run_id)
        self._over.pop(run_id, None)
        self._tidied.discard(run_id)

    def moved(self, run_id: str) -> tuple[int, int] | None:
        """How far the files of a run are, while they are being moved."""
        return self._files.moved(run_id)

    # Logs

    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Part of a log."""
        data = await self._logs.read(await self._log(run_id, stream), offset, size)
        known = self._active.get(run_id)
        if data and known and known.job and known.job.meaning.state is RunState.QUEUED:
            # What writes has begun, whatever the last snapshot showed.
            known.job = replace(known.job, states=("RUNNING",), started_at=None)
            self._news.notify({run_id})
        return data

    async def read_samples(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of the journal that the batch script's sampler writes."""
        journal = LogFile(run_id, (await self._known(run_id)).user, "samples")
        return await self._files.read(journal, offset, size) or b""

    async def list_files(self, run_id: str, most: int) -> FolderListing:
        """What is in the folder of the job."""
        return await self._files.list_work(run_id, (await self._known(run_id)).user, most)

    async def read_file(self, run_id: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a file of the job."""
        return await self._files.read_work(run_id, (await self._known(run_id)).user, path, offset, size)

    async def log_size(self, run_id: str, stream: Stream) -> int:
        """How long a log is now."""
        return await self._logs.size(await self._log(run_id, stream))

    async def wait_log(self, run_id: str, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Wait for a log to grow or the run to end."""
        file = await self._log(run_id, stream)
        if run_id in self._active:
            await self._logs.wait(file, offset, timeout)

    async def open_to_read(self) -> LogReader:
        """A reader of the logs in the site's folder."""
        reader = SlurmReader(self._files, self._settings.log_seconds)
        await reader.open()
        return reader

    async def _log(self, run_id: str, stream: Stream) -> LogFile:
        return LogFile(run_id, (await self._known(run_id)).user, stream.value)

    async def _known(self, run_id: str) -> RunRecord:
        if known := self._active.get(run_id):
            return known.record
        if run_id not in self._over and submissions.RUN_ID.fullmatch(run_id):
            await self._load(run_id)  # another control plane may have sent it since we looked
            if known := self._active.get(run_id):
                return known.record
        record = await self._ended(run_id)
        if record is None or not record.user:
            raise NotFound(f"This site has no run {run_id[:100]!r}.")
        return record
