"""The asynchronous client: the same methods as `Client`, over httpx.

```python
from isthmus import AsyncClient

async with AsyncClient() as client:
    job = await client.run(["python", "train.py"])
    async for chunk in job.logs(follow=True):
        sys.stdout.buffer.write(chunk)
    print((await job.wait()).exit_code)
```
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, TypeVar, Unpack

from isthmus import errors

from . import flows, requests
from .answers import check
from .async_transport import AsyncTransport
from .config import cache_home, find_access
from .experiments import CompareOptions, experiment_manifest
from .flows import Flow, Step
from .folders import Limits, Notice, Progress, read_folder, tell_left_out
from .following import Lines, LogCursor, WatchCursor, WatchEvent
from .handles import JobFacts
from .jobs import JobOptions, job_manifest, question
from .kubeconfigs import Access
from .places import EXPERIMENTS, JOBS, place_of
from .requests import Body, Object, Request

T = TypeVar("T")
Objects = list[Object]
HERE = "."


class AsyncClient:
    """A server, seen by one user. What is not said is found as `client/config.py` tells. Tasks may share it."""

    def __init__(self, url: str | None = None, token: str | None = None, namespace: str | None = None) -> None:
        self._begin(find_access(url, token, namespace))

    @classmethod
    def from_environment(cls) -> AsyncClient:
        """The same as `AsyncClient()`: everything from the environment, a login, or the instance on this machine."""
        return cls()

    @classmethod
    def at(cls, access: Access) -> AsyncClient:
        """A client of exactly this server; nothing is looked up."""
        client = cls.__new__(cls)
        client._begin(access)
        return client

    def _begin(self, access: Access) -> None:
        self._access, self._namespace = access, access.namespace
        self._transport = AsyncTransport(access)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._transport.close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._access.url

    @property
    def access(self) -> Access:
        """Where the server is and what opens it."""
        return self._access

    async def namespace(self) -> str:
        """The tenant meant when none is named: the one given, or the token's own."""
        if self._namespace is None:
            self._namespace = await self._drive(flows.home())
        return self._namespace

    # Jobs

    async def run(
        self,
        command: Sequence[str] | str | None = None,
        *,
        script: str | None = None,
        files: str | os.PathLike[str] | None = HERE,
        progress: Progress | None = None,
        notice: Notice | None = None,
        namespace: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncJobHandle:
        """Start a command or a script, with a folder sent along, and answer at once with a handle.

        `files` is the folder; None sends nothing. The present folder, the default, is sent only if it is small;
        name it (`files=Path.cwd()`) to send it whatever its size. `notice` is told what was left out unasked. The
        options are those of `JobOptions`.
        """
        job_manifest(command, script, None, options)  # wrong words are reported before anything is sent
        sent = (
            None
            if files is None
            else await self.send_folder(files, progress=progress, notice=notice, namespace=namespace)
        )
        return await self.submit(job_manifest(command, script, sent, options), namespace=namespace)

    async def submit(self, job: Mapping[str, Any], *, namespace: str | None = None) -> AsyncJobHandle:
        """Create a Job from its manifest, exactly once even if replies are lost on the way."""
        home = namespace or (job.get("metadata") or {}).get("namespace") or await self.namespace()
        return AsyncJobHandle(self, await self._drive(flows.submit(home, job)))

    async def send_folder(
        self,
        folder: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
        notice: Notice | None = None,
        namespace: str | None = None,
    ) -> Object:
        """Send a folder; only what the server lacks goes over the wire. Answers tree (digest), count and bytes."""
        limits = Limits() if folder == HERE else None
        found = await asyncio.to_thread(read_folder, folder, limits=limits, cache_home=cache_home())
        tell_left_out(found, notice)
        if not found.files:
            return {"tree": "", "count": 0, "bytes": 0}

        def pack(digests: Sequence[str]) -> Body:
            from .packs import pack_body

            return pack_body(found.contents, digests, progress)

        home = namespace or await self.namespace()
        return await self._drive(flows.upload(home, found.contents, found.document, pack))

    async def job(self, name: str, *, namespace: str | None = None) -> AsyncJobHandle:
        """A job by its name."""
        return AsyncJobHandle(self, await self.get("jobs", name, namespace=namespace))

    async def jobs(
        self, *, phase: str | None = None, labels: str | None = None, namespace: str | None = None
    ) -> list[AsyncJobHandle]:
        """The jobs, oldest first; of one phase, or with certain labels, if you say so."""
        fields = f"status.phase={phase}" if phase else None
        found = await self.list("jobs", labels=labels, fields=fields, namespace=namespace)
        found.sort(key=lambda job: str(job["metadata"].get("creationTimestamp") or ""))
        return [AsyncJobHandle(self, job) for job in found]

    async def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        stream: str | None = None,
        tail: int | None = None,
        offset: int = 0,
        attempt: int | None = None,
        namespace: str | None = None,
    ) -> AsyncIterator[bytes]:
        """A job's output as bytes; with `follow` until the job has ended, over lost connections and further tries."""
        home = namespace or await self.namespace()
        cursor = LogCursor(home, name, follow=follow, stream=stream, tail=tail, offset=offset, attempt=attempt)
        async for chunk in self.read_log(cursor):
            yield chunk

    async def read_log(self, cursor: LogCursor) -> AsyncIterator[bytes]:
        """The bytes after a cursor."""
        while True:
            try:
                if cursor.follow and cursor.attempt is None:
                    cursor.seen(await self.get("jobs", cursor.name, namespace=cursor.namespace))
                async with self._transport.open(cursor.request()) as stream:
                    cursor.opened(stream.headers)
                    async for chunk in self._transport.chunks(stream):
                        cursor.advanced(len(chunk))
                        yield chunk
                if not cursor.follow or cursor.ended(await self.get("jobs", cursor.name, namespace=cursor.namespace)):
                    return
                await asyncio.sleep(0.05)
            except errors.IsthmusError as error:
                await asyncio.sleep(cursor.failed(error))

    async def wait(
        self,
        name: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the same as the synchronous client's
        namespace: str | None = None,
    ) -> AsyncJobHandle:
        """Wait until a job has ended; raises TimeoutError if it takes longer than `timeout` seconds."""
        job = await self.job(name, namespace=namespace)
        if job.finished:
            return job
        cursor = WatchCursor(JOBS, job.namespace, None, f"metadata.name={name}")
        cursor.listed([job.object], str(job.object["metadata"].get("resourceVersion")))
        async for event in self.read_watch(cursor, timeout):
            if event.type == "DELETED" and event.object["metadata"].get("uid") == job.uid:
                raise errors.NotFound(f"job {name!r} was deleted before it ended")
            if (now := AsyncJobHandle(self, event.object)).finished:
                return now
        raise TimeoutError(f"job {name!r} has not ended after {timeout:g} seconds")

    async def cancel(self, name: str, *, namespace: str | None = None) -> AsyncJobHandle:
        """Ask for the end of a job; it is over when its phase says so."""
        return await self._intend("Cancel", name, namespace)

    async def hold(self, name: str, *, namespace: str | None = None) -> AsyncJobHandle:
        """Keep a job that has not started from starting."""
        return await self._intend("Hold", name, namespace)

    async def release(self, name: str, *, namespace: str | None = None) -> AsyncJobHandle:
        """Let a held job start."""
        return await self._intend("Run", name, namespace)

    async def _intend(self, intent: str, name: str, namespace: str | None) -> AsyncJobHandle:
        return AsyncJobHandle(self, await self.patch("jobs", name, {"spec": {"intent": intent}}, namespace=namespace))

    async def plan(
        self,
        job: Mapping[str, Any] | str,
        *,
        deadline: str | None = None,
        late_cost_per_hour: float | None = None,
        namespace: str | None = None,
    ) -> Object:
        """What would become of a job: a manifest, or the name of one that there is, perhaps with another deadline."""
        home = namespace or await self.namespace()
        answer = await self.ask(requests.plan(home, question(job, deadline, late_cost_per_hour)))
        return dict(answer["status"])

    async def outputs(self, name: str, *, namespace: str | None = None) -> Object:
        """What a job left: `files`, each with path, size and digest, and `bytes` in all. Of an array, below indices."""
        return await self._drive(flows.outputs(namespace or await self.namespace(), name))

    async def download(
        self, name: str, folder: str | os.PathLike[str] = HERE, *, namespace: str | None = None
    ) -> list[str]:
        """Put what a job left into a folder, and answer the paths. Files that are there already are replaced.

        Of an array, what each element left goes into a folder named by its index.
        """
        from .packs import unpack

        home = namespace or await self.namespace()
        written: list[str] = []
        for part in await self._drive(flows.parts(home, name)):
            with TemporaryFile() as file:
                async with self._transport.open(requests.outputs_archive(home, part.job)) as stream:
                    async for chunk in self._transport.chunks(stream):
                        await asyncio.to_thread(file.write, chunk)
                file.seek(0)
                written += await asyncio.to_thread(unpack, file, Path(folder), part.below)
        return written

    async def read_output(self, name: str, path: str, *, namespace: str | None = None) -> bytes:
        """One file that a job left."""
        return await self._drive(flows.read_output(namespace or await self.namespace(), name, path))

    async def metrics(
        self, name: str, *, since: str | None = None, attempt: int | None = None, namespace: str | None = None
    ) -> Object:
        """What was measured of a job so far: `series` of points, and a `cursor` to read on from with `since`."""
        return await self.ask(requests.metrics(namespace or await self.namespace(), name, since, attempt))

    # Experiments

    async def compare(
        self,
        command: Sequence[str] | str | None = None,
        *,
        script: str | None = None,
        files: str | os.PathLike[str] | None = HERE,
        progress: Progress | None = None,
        notice: Notice | None = None,
        namespace: str | None = None,
        **options: Unpack[CompareOptions],
    ) -> Object:
        """Start an Experiment: a command over devices and parameters, compared. The options are `CompareOptions`."""
        experiment_manifest(command, script, None, options)  # wrong words are reported before anything is sent
        sent = None
        if files is not None:
            sent = await self.send_folder(files, progress=progress, notice=notice, namespace=namespace)
        made = experiment_manifest(command, script, sent, options)
        return await self._drive(flows.submit(namespace or await self.namespace(), made, EXPERIMENTS))

    async def wait_experiment(
        self,
        name: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the same as the synchronous client's
        namespace: str | None = None,
    ) -> Object:
        """Wait until an experiment is over, and answer it; raises TimeoutError after `timeout` seconds."""
        await self.get("experiments", name, namespace=namespace)  # one that is not there will never end
        watching = self.watch("experiments", fields=f"metadata.name={name}", timeout=timeout, namespace=namespace)
        async for event in watching:
            if event.type == "DELETED":
                raise errors.NotFound(f"experiment {name!r} was deleted before it ended")
            if (event.object.get("status") or {}).get("phase") in flows.TERMINAL:
                return event.object
        raise TimeoutError(f"experiment {name!r} has not ended after {timeout:g} seconds")

    # Objects of any kind

    async def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        """One object."""
        place = place_of(kind)
        return await self.ask(requests.get(place, await self._home(place.namespaced, namespace), name))

    async def list(
        self,
        kind: str,
        *,
        labels: str | None = None,
        fields: str | None = None,
        namespace: str | None = None,
        everywhere: bool = False,
    ) -> Objects:
        """All objects of a kind; `everywhere` looks into every tenant that you may see."""
        place = place_of(kind)
        home = None if everywhere else await self._home(place.namespaced, namespace)
        items, _ = await self._drive(flows.everything(place, home, labels, fields))
        return list(items)

    async def apply(self, obj: Mapping[str, Any], *, namespace: str | None = None) -> tuple[Object, str]:
        """Create an object, or change the present one to it; answers it and `created`, `configured` or `unchanged`."""
        place = flows.place_of_object(obj)
        home = namespace or (obj.get("metadata") or {}).get("namespace")
        return await self._drive(flows.apply(place, await self._home(place.namespaced, home), obj))

    async def create(self, obj: Mapping[str, Any], *, namespace: str | None = None) -> Object:
        """Create an object of any kind."""
        place = flows.place_of_object(obj)
        home = namespace or (obj.get("metadata") or {}).get("namespace")
        return await self.ask(requests.create(place, await self._home(place.namespaced, home), obj))

    async def patch(self, kind: str, name: str, change: Mapping[str, Any], *, namespace: str | None = None) -> Object:
        """Change fields of an object; a field set to None is removed."""
        place = place_of(kind)
        return await self.ask(requests.patch(place, await self._home(place.namespaced, namespace), name, change))

    async def delete(
        self, kind: str, name: str, *, propagation: str | None = None, namespace: str | None = None
    ) -> Object:
        """Delete an object; `propagation` is Background, Foreground or Orphan."""
        place = place_of(kind)
        return await self.ask(requests.delete(place, await self._home(place.namespaced, namespace), name, propagation))

    async def watch(
        self,
        kind: str,
        *,
        labels: str | None = None,
        fields: str | None = None,
        namespace: str | None = None,
        everywhere: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - the same as the synchronous client's
    ) -> AsyncIterator[WatchEvent]:
        """The present objects as ADDED, then every change, for ever or for `timeout` seconds."""
        place = place_of(kind)
        home = None if everywhere else await self._home(place.namespaced, namespace)
        async for event in self.read_watch(WatchCursor(place, home, labels, fields), timeout):
            yield event

    async def read_watch(
        self,
        cursor: WatchCursor,
        timeout: float | None = None,  # noqa: ASYNC109 - the same as the synchronous client's
    ) -> AsyncIterator[WatchEvent]:
        """The changes after a cursor."""
        clock = asyncio.get_running_loop().time
        end = None if timeout is None else clock() + timeout
        while end is None or clock() < end:
            try:
                if cursor.version is None:
                    found = flows.everything(cursor.place, cursor.namespace, cursor.labels, cursor.fields)
                    for event in cursor.listed(*await self._drive(found)):
                        yield event
                async for event in self._watch_once(cursor, end):
                    yield event
                pause = 0.05
            except TimeoutError:
                return
            except errors.IsthmusError as error:
                pause = cursor.failed(error)
            await asyncio.sleep(pause if end is None else max(0.0, min(pause, end - clock())))

    async def _watch_once(self, cursor: WatchCursor, end: float | None) -> AsyncIterator[WatchEvent]:
        lines = Lines()
        async with self._transport.open(cursor.request()) as stream:
            chunks = aiter(self._transport.chunks(stream))
            while True:
                async with asyncio.timeout_at(end):
                    chunk = await anext(chunks, b"")
                if not chunk:
                    return
                for line in lines.feed(chunk):
                    if event := cursor.feed(line):
                        yield event

    async def events(self, name: str, *, kind: str = "Job", namespace: str | None = None) -> Objects:
        """What happened to an object, oldest first."""
        fields = f"involvedObject.name={name},involvedObject.kind={kind}"
        found = await self.list("events", fields=fields, namespace=namespace)
        found.sort(key=lambda event: str(event.get("lastTimestamp") or ""))
        return found

    async def whoami(self) -> Object:
        """Who the token is: `username` and `groups`."""
        review = await self.ask(requests.whoami())
        return dict((review.get("status") or {}).get("userInfo") or {})

    async def version(self) -> Object:
        """What the server is."""
        return await self.ask(requests.version())

    async def authority(self) -> bytes:
        """The certificate (PEM) of the authority that vouches for the server; raises NotFound if it needs none."""
        answer = await self._drive(flows.call(requests.authority()))
        check(answer)
        return answer.body

    # How it is done

    async def _home(self, namespaced: bool, namespace: str | None) -> str | None:
        return (namespace or await self.namespace()) if namespaced else None

    async def ask(self, request: Request) -> Object:
        """One request of your own, from `client.requests`, and the object in its answer."""
        return await self._drive(flows.ask(request))

    async def _drive(self, flow: Flow[T]) -> T:
        try:
            step: Step = next(flow)
            while True:
                try:
                    answer = await self._transport.perform(step)
                except errors.IsthmusError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value


class AsyncJobHandle(JobFacts):
    """A job on a server."""

    def __init__(self, client: AsyncClient, obj: Object) -> None:
        super().__init__(obj)
        self._client = client

    async def refresh(self) -> AsyncJobHandle:
        """Look again; raises NotFound if the job is gone or another one has its name."""
        found = await self._client.get("jobs", self.name, namespace=self.namespace)
        if self.uid and found["metadata"].get("uid") != self.uid:
            raise errors.NotFound(f"job {self.name!r} was deleted, and another one has its name now")
        self.object = found
        return self

    async def wait(self, timeout: float | None = None) -> AsyncJobHandle:  # noqa: ASYNC109
        """Wait until it has ended; raises TimeoutError if that takes longer than `timeout` seconds."""
        self.object = (await self._client.wait(self.name, timeout=timeout, namespace=self.namespace)).object
        return self

    def logs(
        self, *, follow: bool = False, stream: str | None = None, tail: int | None = None, attempt: int | None = None
    ) -> AsyncIterator[bytes]:
        """Its output as bytes."""
        return self._client.logs(
            self.name, follow=follow, stream=stream, tail=tail, attempt=attempt, namespace=self.namespace
        )

    async def cancel(self) -> AsyncJobHandle:
        """Ask for its end."""
        self.object = (await self._client.cancel(self.name, namespace=self.namespace)).object
        return self

    async def outputs(self) -> Object:
        """What it left."""
        return await self._client.outputs(self.name, namespace=self.namespace)

    async def download(self, folder: str | os.PathLike[str] = HERE) -> list[str]:
        """Put what it left into a folder."""
        return await self._client.download(self.name, folder, namespace=self.namespace)

    async def read_output(self, path: str) -> bytes:
        """One file that it left."""
        return await self._client.read_output(self.name, path, namespace=self.namespace)
