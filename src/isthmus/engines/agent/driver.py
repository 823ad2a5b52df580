"""The engine of a machine that has an agent: the contract, each part of it a call over the agent's connection.

Nothing is kept here that the agent does not have: a submission whose answer is lost is looked up by the run's id,
because the agent's own engine looks for it before it starts anything. While the agent is not connected nothing is
known and nothing is concluded. What it says is untrusted: see `messages` and `incoming`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from isthmus._kit.clock import timestamp, utcnow
from isthmus._kit.crashpoints import reach
from isthmus._kit.quantities import format_unequal_bytes
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
from isthmus.engines.news import News
from isthmus.engines.sent_images import check_reference
from isthmus.errors import EngineRefused, IsthmusError, NotFound, SiteUnavailable
from isthmus.metrics import count_task_failure
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.sites import AgentContact, ProposedClass
from isthmus.resources.work.trees import TreeFile, check_path

from .boards import parse_boards, propose
from .contacts import Contact, ago, is_lost, link_of
from .frames import ProtocolViolation, document, parse_value
from .incoming import IncomingFiles
from .linking import AgentCall, CallFailed, Link, LinkLost, encode_body
from .messages import (
    BODY_LIMIT,
    RUN_ID,
    encode_classes,
    encode_run,
    error_of,
    parse_ids,
    parse_inventory,
    parse_listing,
    parse_observation,
    text,
    whole,
)
from .offers import AgentOffer
from .settings import AgentSettings

T = TypeVar("T")
MOST_KNOWN = 200_000
"""Runs of one agent that are followed at once."""
ANSWER_LIMIT = 24 * 2**20
"""Bytes of an answer: the longest names each of 200,000 files or runs, with its length."""
_PIECE = 256 * 1024
_LARGEST = 2**62
_OFFER_SECONDS = 600.0
"""After which an agent that was not upgraded is asked again."""
_UPGRADE_SECONDS = 600.0
"""In which an agent makes an environment of the packages: on a small machine that fetches some, minutes."""
log = logging.getLogger(__name__)


class AgentEngine:
    """Runs jobs on a machine that an agent speaks for."""

    def __init__(self, settings: AgentSettings, contact: Contact) -> None:
        self._settings, self._contact = settings, contact
        self._may_be_lost = settings.lost_after is not None or settings.lost_at is not None
        self._able = Capabilities(samples=True, log_files=True, corrects=self._may_be_lost)
        self._opened = utcnow()
        self._inventory: Inventory | None = None
        self._proposals: list[ProposedClass] = []
        self._known: set[str] = set()
        self._first = asyncio.Event()
        self._news = News()
        self.tasks = SupervisedTasks(failed=count_task_failure)

    @property
    def capabilities(self) -> Capabilities:
        """What the agent's engine can do by itself, as it said last."""
        return self._able

    async def open(self) -> None:
        """Begin to hear of the agent's runs, as soon as it is connected."""
        self._opened = utcnow()
        self._contact.listeners.add(self.tasks.notify)
        self.tasks.start("agent-news", self._follow)
        if self._settings.offer is not None:
            self.tasks.start("agent-upgrade", self._keep_current)

    async def close(self) -> None:
        """Let go. Runs go on, and the agent stays connected."""
        self._contact.listeners.discard(self.tasks.notify)
        await self.tasks.close()
        self._news.close()

    async def probe(self, classes: Sequence[DeviceClass]) -> Inventory:
        """What the agent's machine offers."""
        said = await self._ask("probe", body=encode_body(encode_classes(classes)))
        self._inventory, able = parse_inventory(said)
        self._able = replace(able, corrects=self._may_be_lost)
        self._proposals = propose(parse_boards(said.get("boards")))
        return self._inventory

    def contact(self) -> AgentContact:
        """What was last heard of the agent."""
        contact = self._contact
        heard, refusal = contact.last_heard, contact.refusal
        return AgentContact(
            version=contact.version or None,
            address=contact.address or None,
            last_contact=timestamp(heard) if heard else None,
            proposals=self._proposals,
            refused=f"{refusal.at} from {refusal.address}: {refusal.why}"[:512] if refusal else None,
        )

    @property
    def lost(self) -> bool:
        """Whether its runs count as lost: it is away, and its limit is over or an administrator gave it up."""
        contact, settings = self._contact, self._settings
        if contact.link is not None:
            return False
        return is_lost(contact.last_heard, self._opened, utcnow(), settings.lost_after, settings.lost_at)

    def check(self, run: Run) -> None:
        """Refuse what can never work there, by what was last heard of the machine."""
        if not RUN_ID.fullmatch(run.id):
            raise EngineRefused(f"{run.id!r} is not the id of a run: it must be a uid, a dot and a number.")
        if run.nodes > 1:
            raise EngineRefused(f"The job asks for {run.nodes} nodes; site {self._settings.site} is a single machine.")
        if not run.command and run.script is None:
            raise EngineRefused("There is neither a command nor a script to run.")
        if run.image is not None:
            check_reference(run.image)
        if self._inventory is None:
            return
        if run.image is not None and not self._able.images:
            raise EngineRefused(f"Site {self._settings.site} runs no container images. Choose another site.")
        if run.python is not None and not self._able.environments:
            raise EngineRefused(
                f"The agent of site {self._settings.site} is too old to make environments. Have it updated, or choose "
                "another site."
            )
        has = self._inventory.capacity
        if run.milli_cpus > has.cpus * 1000:
            raise EngineRefused(f"The job asks for {run.milli_cpus / 1000:g} cpus; this machine offers {has.cpus:g}.")
        if run.memory_bytes > has.memory_bytes:
            asked, offered = format_unequal_bytes(run.memory_bytes, has.memory_bytes)
            raise EngineRefused(f"The job asks for {asked} of memory; this machine offers {offered}.")
        for name, count in run.devices.items():
            if count > has.devices.get(name, 0):
                raise EngineRefused(f"The job asks for {count} of {name}; this machine has {has.devices.get(name, 0)}.")

    async def submit(self, run: Run, files: FileSource | None = None) -> Observation:
        """Start the run, or find it if it was started before: the agent says which files it lacks, and gets them."""
        if not RUN_ID.fullmatch(run.id):
            self.check(run)
        if run.python is not None:
            run = replace(run, python=run.python.of_site(self._settings.package_index, self._settings.wheels))
        body = await asyncio.to_thread(lambda: encode_body(encode_run(run, files.files if files else None)))
        if len(body) > BODY_LIMIT:
            raise EngineRefused("The job with the list of its files is too long for an agent; send fewer files.")
        for _ in range(3):
            said = await self._ask("submit", {"run": run.id}, body=body, seconds=self._settings.submit_seconds)
            reach("submit:asked")
            if "missing" not in said:
                self._known.add(run.id)
                return self._observed(said)
            assert files is not None
            await self._send(files, said)
        raise SiteUnavailable(f"The agent of site {self._settings.site} does not keep the files that it is sent.")

    async def _send(self, files: FileSource, said: Mapping[str, Any]) -> None:
        """Contents that the agent lacks; it says how many bytes it has of each."""
        missing = said["missing"]
        wanted: dict[str, TreeFile] = {file.digest: file for file in files.files if file.digest}
        for digest, have in missing.items() if isinstance(missing, dict) else ():
            file = wanted.get(digest)
            if file is not None:  # it gets nothing but what belongs to the run
                path = await asyncio.to_thread(files.path_of, file)
                await self._put(digest, path, file.size, whole(have, file.size))

    async def _keep_current(self) -> None:
        """Offer the agent our own version, whenever it connects with another."""
        assert self._settings.offer is not None
        while True:
            changed, link = self._contact.changed, self._contact.link
            if link is not None and link.alive:
                try:
                    await self._offer(self._settings.offer)
                except IsthmusError as error:
                    log.warning("agent not upgraded", extra={"site": self._settings.site, "why": error.message})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_OFFER_SECONDS):
                        await changed.wait()
            else:
                await changed.wait()

    async def _offer(self, offer: AgentOffer) -> None:
        packages = await offer.for_agent(self._contact)
        if packages is None:
            return
        async with offer.turns:
            files = {f"sha256:{one.digest}": one for one in (packages.main, *packages.others)}
            body = encode_body(packages.to_json())
            for _ in range(3):
                said = await self._ask("upgrade", body=body, seconds=_UPGRADE_SECONDS)
                missing = said.get("missing")
                if not isinstance(missing, dict):
                    log.info("agent upgraded", extra={"site": self._settings.site, "build": packages.build})
                    return
                for digest, have in missing.items():
                    if (one := files.get(digest)) is not None:
                        await self._put(digest, one.path, one.size, whole(have, one.size))

    async def _put(self, digest: str, path: Path, size: int, offset: int) -> None:
        async with self._calling("put", {"digest": digest, "size": size, "offset": offset}) as call:
            with path.open("rb") as source:
                source.seek(offset)
                while piece := await asyncio.to_thread(source.read, _PIECE):
                    await self._within(call.send(piece))
            call.finish()
            await self._within(call.read(0))

    async def observe(self, run_id: str) -> Observation | None:
        """What the agent says of a run."""
        if not RUN_ID.fullmatch(run_id):
            return None
        if self.lost:
            heard = self._contact.last_heard
            since = f", last heard {ago(heard, utcnow())}," if heard else ""
            message = f"its machine{since} counts as lost; if it ended there, that is recorded when it is heard again"
            return Observation(RunState.ENDED, reason=EndReason.NODE_LOST, message=message)
        said = await self._ask("observe", {"run": run_id})
        if said.get("known") is False:
            return None
        return self._observed(said)

    def _observed(self, said: Mapping[str, Any]) -> Observation:
        return parse_observation(said, utcnow(), self._contact.clock_offset)

    async def changes(self) -> AsyncIterator[set[str]]:
        """Ids of runs as the agent reports them; all of them each time that it connects."""
        await self._first.wait()
        async for ids in self._news.subscribe(lambda: set(self._known)):
            yield ids

    async def cancel(self, run_id: str, *, grace: float = 5.0) -> None:
        """Have the agent ask for the end."""
        if RUN_ID.fullmatch(run_id):
            await self._ask("cancel", {"run": run_id, "grace": grace})

    async def collect(self, run_id: str, patterns: Sequence[str], sink: FileSink) -> list[str]:
        """Bring back the files that match."""
        if not RUN_ID.fullmatch(run_id):
            raise NotFound(f"This site has no run {run_id[:100]!r}.")
        if self.lost:
            raise NotFound("The outputs are on a machine that counts as lost.")
        incoming = IncomingFiles(self._settings.folder, run_id, self._settings.max_output_bytes)
        have = await asyncio.to_thread(incoming.have)
        async with self._calling("collect", {"run": run_id}) as call:
            await self._within(call.send(encode_body({"patterns": list(patterns), "have": have})))
            call.finish()
            try:
                skipped = await incoming.receive(call, sink, self._settings.call_seconds)
            except TimeoutError:
                raise self._silent("collect") from None
        await asyncio.to_thread(incoming.remove)
        return skipped

    async def tidy(self, run_id: str) -> None:
        """Free the working folder, there and what is on its way here."""
        if RUN_ID.fullmatch(run_id):
            await self._ask("tidy", {"run": run_id})
            await asyncio.to_thread(IncomingFiles(self._settings.folder, run_id, 0).remove)

    async def forget(self, run_id: str) -> None:
        """Remove everything of an ended run."""
        if RUN_ID.fullmatch(run_id):
            said = await self._ask("forget", {"run": run_id})
            if said.get("known") is False:
                self._known.discard(run_id)
            await asyncio.to_thread(IncomingFiles(self._settings.folder, run_id, 0).remove)

    # Reading

    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes:
        """Part of a log."""
        return await self._part("read_log", run_id, size, stream=stream.value, offset=offset)

    async def read_samples(self, run_id: str, offset: int, size: int) -> bytes:
        """Part of the journal."""
        return await self._part("read_samples", run_id, size, offset=offset)

    async def log_size(self, run_id: str, stream: Stream) -> int:
        """How long a log is now."""
        self._readable(run_id)
        said = await self._ask("log_size", {"run": run_id, "stream": stream.value})
        return whole(said.get("size"), _LARGEST)

    async def wait_log(self, run_id: str, stream: Stream, offset: int, timeout: float) -> None:  # noqa: ASYNC109
        """Wait for a log to grow or the run to end; while the agent is away, for the agent."""
        self._readable(run_id)
        with contextlib.suppress(LinkLost):
            async with asyncio.timeout(timeout) as limit:
                head = {"run": run_id, "stream": stream.value, "offset": offset, "timeout": timeout}
                try:
                    await self._ask("wait_log", head, seconds=timeout + self._settings.call_seconds)
                except SiteUnavailable:
                    if self._contact.link is not None:
                        raise
                    await self._contact.changed.wait()
                except TimeoutError:
                    if not limit.expired():
                        raise
            return

    async def list_files(self, run_id: str, most: int) -> FolderListing:
        """What is in the folder of the job."""
        self._readable(run_id)
        async with self._calling("list_files", {"run": run_id, "most": most}) as call:
            call.finish()
            body = await self._within(call.read(most * 8192 + 1024))
        return parse_listing(parse_value(body), most)

    async def read_file(self, run_id: str, path: str, offset: int, size: int) -> FilePart:
        """Part of a file of the job."""
        check_path(path)
        self._readable(run_id)
        head = {"run": run_id, "path": path, "offset": offset, "size": size}
        async with self._calling("read_file", head) as call:
            call.finish()
            data = await self._within(call.read(size))
            return FilePart(data, whole(call.result.get("size"), _LARGEST), text(call.result.get("mark"), 100))

    async def open_to_read(self) -> LogReader:
        """A reader: the agent has one connection, and what it is asked through a reader changes nothing there."""
        return AgentReader(self)

    async def _part(self, name: str, run_id: str, size: int, **head: Any) -> bytes:
        self._readable(run_id)
        async with self._calling(name, {"run": run_id, "size": size, **head}) as call:
            call.finish()
            return await self._within(call.read(size))

    def _readable(self, run_id: str) -> None:
        if not RUN_ID.fullmatch(run_id):
            raise NotFound(f"This site has no run {run_id[:100]!r}.")
        if self.lost:
            raise NotFound("What the job wrote is on a machine that counts as lost.")

    # Calls

    async def _ask(
        self, name: str, head: Mapping[str, Any] | None = None, *, body: bytes = b"", seconds: float | None = None
    ) -> dict[str, Any]:
        """A call whose answer is one document."""
        async with self._calling(name, head or {}) as call:
            try:
                async with asyncio.timeout(seconds or self._settings.call_seconds):
                    for at in range(0, len(body), _PIECE):
                        await call.send(body[at : at + _PIECE])
                    call.finish()
                    answer = await call.read(ANSWER_LIMIT)
            except TimeoutError:
                raise self._silent(name) from None
            return document(answer) if answer else call.result

    @contextlib.asynccontextmanager
    async def _calling(self, name: str, head: Mapping[str, Any]) -> AsyncIterator[AgentCall]:
        """A call; what the agent fails it with is raised as our own error."""
        link = link_of(self._contact, self._settings.site, joined=self._settings.joined)
        try:
            async with link.call({"call": name, **head}) as call:
                yield call
        except CallFailed as failed:
            raise error_of(failed.reason) from None
        except ProtocolViolation as error:
            link.cut(f"The agent broke the protocol: {error}.")
            raise SiteUnavailable(
                f"The agent of site {self._settings.site} answers what it may not: {error}."
            ) from None

    async def _within(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._settings.call_seconds):
                return await work
        except TimeoutError:
            raise self._silent("files") from None

    def _silent(self, what: str) -> SiteUnavailable:
        return SiteUnavailable(f"The agent of site {self._settings.site} did not answer in time ({what}).")

    # News

    async def _follow(self) -> None:
        """Hear of runs while the agent is connected, and of all of them whenever it connects."""
        while True:
            changed = self._contact.changed
            link = self._contact.link
            if link is not None and link.alive:
                with contextlib.suppress(SiteUnavailable):
                    await self._hear(link)
                if self._contact.link is link:
                    await asyncio.sleep(1.0)  # it says nothing more, or is just being let go: it is asked again
                    continue
            await changed.wait()

    async def _hear(self, link: Link) -> None:
        async with self._calling("changes", {}) as call:
            rest = bytearray()
            while data := await call.receive():
                first, *more = data.split(b"\n")
                rest += first
                if len(rest) > ANSWER_LIMIT:
                    raise ProtocolViolation("a line without end")
                lines = [bytes(rest), *more[:-1]] if more else []
                if more:
                    rest = bytearray(more[-1])
                ids = set[str]().union(*(parse_ids(parse_value(line)) for line in lines))
                if len(self._known) + len(ids) > MOST_KNOWN:
                    raise ProtocolViolation("more runs than there can be")
                self._known |= ids
                if lines:
                    self._first.set()
                self._news.notify(ids)


class AgentReader:
    """Reads through the agent's connection, without hearing of its runs."""

    def __init__(self, engine: AgentEngine) -> None:
        self._engine = engine
        self.read_log, self.read_samples = engine.read_log, engine.read_samples
        self.log_size, self.wait_log = engine.log_size, engine.wait_log
        self.list_files, self.read_file = engine.list_files, engine.read_file

    async def close(self) -> None:
        """Let go; the connection is not the reader's."""
