"""The synchronous client: drives the shared flows over the standard library's HTTP.

```python
from isthmus import Client

client = Client()                                   # the server of `isthmus login`, or the one on this machine
job = client.run(["python", "train.py"], cpus=4)    # sends this folder along
for chunk in job.logs(follow=True):
    sys.stdout.buffer.write(chunk)
print(job.wait().exit_code)
```
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TypeVar, Unpack, cast

from isthmus import errors

from . import flows, requests
from .answers import check, read
from .config import cache_home, find_access
from .experiments import CompareOptions, experiment_manifest
from .flows import Flow, Pause, Step
from .following import Lines, LogCursor, WatchCursor, WatchEvent
from .handles import JobFacts
from .jobs import JobOptions, job_manifest
from .kubeconfigs import Access
from .places import EXPERIMENTS, JOBS, place_of
from .requests import Object, Request
from .transport import Stream, Transport

if TYPE_CHECKING:
    from .folders import Notice, Progress

T = TypeVar("T")
Objects = list[Object]
HERE = "."


class Client:
    """A server, seen by one user. What is not said is found as `client/config.py` tells. Threads may share it."""

    def __init__(self, url: str | None = None, token: str | None = None, namespace: str | None = None) -> None:
        self._access = find_access(url, token, namespace)
        self._transport = Transport(self._access)
        self._namespace = self._access.namespace

    @classmethod
    def from_environment(cls) -> Client:
        """The same as `Client()`: everything from the environment, a login, or the instance on this machine."""
        return cls()

    @classmethod
    def at(cls, access: Access) -> Client:
        """A client of exactly this server; nothing is looked up."""
        client = cls.__new__(cls)
        client._access, client._namespace = access, access.namespace
        client._transport = Transport(access)
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._transport.close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._access.url

    @property
    def access(self) -> Access:
        """Where the server is and what opens it."""
        return self._access

    def namespace(self) -> str:
        """The tenant meant when none is named: the one given, or the token's own."""
        if self._namespace is None:
            self._namespace = self._drive(flows.home())
        return self._namespace

    # Jobs

    def run(
        self,
        command: Sequence[str] | str | None = None,
        *,
        script: str | None = None,
        files: str | os.PathLike[str] | None = HERE,
        progress: Progress | None = None,
        notice: Notice | None = None,
        namespace: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle:
        """Start a command or a script, with a folder sent along, and answer at once with a handle.

        `files` is the folder; None sends nothing. The present folder, the default, is sent only if it is small;
        name it (`files=Path.cwd()`) to send it whatever its size. `notice` is told what was left out unasked. The
        options are those of `JobOptions`.
        """
        job_manifest(command, script, None, options)  # wrong words are reported before anything is sent
        sent = None if files is None else self.send_folder(files, progress=progress, notice=notice, namespace=namespace)
        return self.submit(job_manifest(command, script, sent, options), namespace=namespace)

    def submit(self, job: Mapping[str, Any], *, namespace: str | None = None) -> JobHandle:
        """Create a Job from its manifest, exactly once even if replies are lost on the way."""
        home = namespace or (job.get("metadata") or {}).get("namespace") or self.namespace()
        return JobHandle(self, self._drive(flows.submit(home, job)))

    def send_folder(
        self,
        folder: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
        notice: Notice | None = None,
        namespace: str | None = None,
    ) -> Object:
        """Send a folder; only what the server lacks goes over the wire. Answers tree (digest), count and bytes."""
        from .folders import Limits, read_folder, tell_left_out  # hashing is not needed by most commands

        found = read_folder(folder, limits=Limits() if folder == HERE else None, cache_home=cache_home())
        tell_left_out(found, notice)
        if not found.files:
            return {"tree": "", "count": 0, "bytes": 0}

        def pack(digests: Sequence[str]) -> requests.Body:
            from .packs import pack_body

            return pack_body(found.contents, digests, progress)

        home = namespace or self.namespace()
        return self._drive(flows.upload(home, found.contents, found.document, pack))

    def job(self, name: str, *, namespace: str | None = None) -> JobHandle:
        """A job by its name."""
        return JobHandle(self, self.get("jobs", name, namespace=namespace))

    def jobs(
        self, *, phase: str | None = None, labels: str | None = None, namespace: str | None = None
    ) -> list[JobHandle]:
        """The jobs, oldest first; of one phase, or with certain labels, if you say so."""
        fields = f"status.phase={phase}" if phase else None
        found = self.list("jobs", labels=labels, fields=fields, namespace=namespace)
        found.sort(key=lambda job: str(job["metadata"].get("creationTimestamp") or ""))
        return [JobHandle(self, job) for job in found]

    def logs(
        self,
        name: str,
        *,
        follow: bool = False,
        stream: str | None = None,
        tail: int | None = None,
        offset: int = 0,
        attempt: int | None = None,
        namespace: str | None = None,
    ) -> Iterator[bytes]:
        """A job's output as bytes; with `follow` until the job has ended, over lost connections and further tries."""
        home = namespace or self.namespace()
        cursor = LogCursor(home, name, follow=follow, stream=stream, tail=tail, offset=offset, attempt=attempt)
        return self.read_log(cursor)

    def read_log(self, cursor: LogCursor) -> Iterator[bytes]:
        """The bytes after a cursor."""
        while True:
            try:
                if cursor.follow and cursor.attempt is None:
                    cursor.seen(self.get("jobs", cursor.name, namespace=cursor.namespace))
                with self._open(cursor.request()) as stream:
                    cursor.opened(stream.headers)
                    for chunk in stream:
                        cursor.advanced(len(chunk))
                        yield chunk
                if not cursor.follow or cursor.ended(self.get("jobs", cursor.name, namespace=cursor.namespace)):
                    return
                time.sleep(0.05)
            except errors.IsthmusError as error:
                time.sleep(cursor.failed(error))

    def wait(self, name: str, *, timeout: float | None = None, namespace: str | None = None) -> JobHandle:
        """Wait until a job has ended; raises TimeoutError if it takes longer than `timeout` seconds."""
        job = self.job(name, namespace=namespace)
        if job.finished:
            return job
        cursor = WatchCursor(JOBS, job.namespace, None, f"metadata.name={name}")
        cursor.listed([job.object], str(job.object["metadata"].get("resourceVersion")))
        for event in self.read_watch(cursor, timeout):
            if event.type == "DELETED" and event.object["metadata"].get("uid") == job.uid:
                raise errors.NotFound(f"job {name!r} was deleted before it ended")
            if (now := JobHandle(self, event.object)).finished:
                return now
        raise TimeoutError(f"job {name!r} has not ended after {timeout:g} seconds")

    def cancel(self, name: str, *, namespace: str | None = None) -> JobHandle:
        """Ask for the end of a job; it is over when its phase says so."""
        return self._intend("Cancel", name, namespace)

    def hold(self, name: str, *, namespace: str | None = None) -> JobHandle:
        """Keep a job that has not started from starting."""
        return self._intend("Hold", name, namespace)

    def release(self, name: str, *, namespace: str | None = None) -> JobHandle:
        """Let a held job start."""
        return self._intend("Run", name, namespace)

    def _intend(self, intent: str, name: str, namespace: str | None) -> JobHandle:
        return JobHandle(self, self.patch("jobs", name, {"spec": {"intent": intent}}, namespace=namespace))

    def outputs(self, name: str, *, namespace: str | None = None) -> Object:
        """What a job left: `files`, each with path, size and digest, and `bytes` in all. Of an array, below indices."""
        return self._drive(flows.outputs(namespace or self.namespace(), name))

    def download(self, name: str, folder: str | os.PathLike[str] = HERE, *, namespace: str | None = None) -> list[str]:
        """Put what a job left into a folder, and answer the paths. Files that are there already are replaced.

        Of an array, what each element left goes into a folder named by its index.
        """
        from .packs import unpack

        home = namespace or self.namespace()
        written: list[str] = []
        for part in self._drive(flows.parts(home, name)):
            with self._open(requests.outputs_archive(home, part.job)) as stream:
                written += unpack(cast("IO[bytes]", stream), Path(folder), part.below)
        return written

    def read_output(self, name: str, path: str, *, namespace: str | None = None) -> bytes:
        """One file that a job left."""
        return self._drive(flows.read_output(namespace or self.namespace(), name, path))

    def metrics(
        self, name: str, *, since: str | None = None, attempt: int | None = None, namespace: str | None = None
    ) -> Object:
        """What was measured of a job so far: `series` of points, and a `cursor` to read on from with `since`."""
        return self.ask(requests.metrics(namespace or self.namespace(), name, since, attempt))

    # Experiments

    def compare(
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
            sent = self.send_folder(files, progress=progress, notice=notice, namespace=namespace)
        made = experiment_manifest(command, script, sent, options)
        return self._drive(flows.submit(namespace or self.namespace(), made, EXPERIMENTS))

    def wait_experiment(self, name: str, *, timeout: float | None = None, namespace: str | None = None) -> Object:
        """Wait until an experiment is over, and answer it; raises TimeoutError after `timeout` seconds."""
        self.get("experiments", name, namespace=namespace)  # one that is not there will never end
        watching = self.watch("experiments", fields=f"metadata.name={name}", timeout=timeout, namespace=namespace)
        for event in watching:
            if event.type == "DELETED":
                raise errors.NotFound(f"experiment {name!r} was deleted before it ended")
            if (event.object.get("status") or {}).get("phase") in flows.TERMINAL:
                return event.object
        raise TimeoutError(f"experiment {name!r} has not ended after {timeout:g} seconds")

    # Objects of any kind

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        """One object."""
        place = place_of(kind)
        return self.ask(requests.get(place, self._home(place.namespaced, namespace), name))

    def list(
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
        home = None if everywhere else self._home(place.namespaced, namespace)
        items, _ = self._drive(flows.everything(place, home, labels, fields))
        return list(items)

    def apply(self, obj: Mapping[str, Any], *, namespace: str | None = None) -> tuple[Object, str]:
        """Create an object, or change the present one to it; answers it and `created`, `configured` or `unchanged`."""
        place = flows.place_of_object(obj)
        home = namespace or (obj.get("metadata") or {}).get("namespace")
        return self._drive(flows.apply(place, self._home(place.namespaced, home), obj))

    def create(self, obj: Mapping[str, Any], *, namespace: str | None = None) -> Object:
        """Create an object of any kind."""
        place = flows.place_of_object(obj)
        home = namespace or (obj.get("metadata") or {}).get("namespace")
        return self.ask(requests.create(place, self._home(place.namespaced, home), obj))

    def patch(self, kind: str, name: str, change: Mapping[str, Any], *, namespace: str | None = None) -> Object:
        """Change fields of an object; a field set to None is removed."""
        place = place_of(kind)
        return self.ask(requests.patch(place, self._home(place.namespaced, namespace), name, change))

    def delete(self, kind: str, name: str, *, propagation: str | None = None, namespace: str | None = None) -> Object:
        """Delete an object; `propagation` is Background, Foreground or Orphan."""
        place = place_of(kind)
        return self.ask(requests.delete(place, self._home(place.namespaced, namespace), name, propagation))

    def watch(
        self,
        kind: str,
        *,
        labels: str | None = None,
        fields: str | None = None,
        namespace: str | None = None,
        everywhere: bool = False,
        timeout: float | None = None,
    ) -> Iterator[WatchEvent]:
        """The present objects as ADDED, then every change, for ever or for `timeout` seconds."""
        place = place_of(kind)
        home = None if everywhere else self._home(place.namespaced, namespace)
        return self.read_watch(WatchCursor(place, home, labels, fields), timeout)

    def read_watch(self, cursor: WatchCursor, timeout: float | None = None) -> Iterator[WatchEvent]:
        """The changes after a cursor."""
        end = None if timeout is None else time.monotonic() + timeout
        while end is None or time.monotonic() < end:
            try:
                if cursor.version is None:
                    found = flows.everything(cursor.place, cursor.namespace, cursor.labels, cursor.fields)
                    yield from cursor.listed(*self._drive(found))
                yield from self._watch_once(cursor, end)
                pause = 0.05
            except TimeoutError:
                return
            except errors.IsthmusError as error:
                pause = cursor.failed(error)
            time.sleep(pause if end is None else max(0.0, min(pause, end - time.monotonic())))

    def _watch_once(self, cursor: WatchCursor, end: float | None) -> Iterator[WatchEvent]:
        lines = Lines()
        with self._open(cursor.request()) as stream:
            while True:
                if end is not None:
                    stream.limit(max(0.001, end - time.monotonic()))
                chunk = stream.read()
                if not chunk:
                    return
                for line in lines.feed(chunk):
                    if event := cursor.feed(line):
                        yield event

    def events(self, name: str, *, kind: str = "Job", namespace: str | None = None) -> Objects:
        """What happened to an object, oldest first."""
        fields = f"involvedObject.name={name},involvedObject.kind={kind}"
        found = self.list("events", fields=fields, namespace=namespace)
        found.sort(key=lambda event: str(event.get("lastTimestamp") or ""))
        return found

    def whoami(self) -> Object:
        """Who the token is: `username` and `groups`."""
        review = self.ask(requests.whoami())
        return dict((review.get("status") or {}).get("userInfo") or {})

    def version(self) -> Object:
        """What the server is."""
        return self.ask(requests.version())

    def authority(self) -> bytes:
        """The certificate (PEM) of the authority that vouches for the server; raises NotFound if it needs none."""
        answer = self._drive(flows.call(requests.authority()))
        check(answer)
        return answer.body

    # How it is done

    def _home(self, namespaced: bool, namespace: str | None) -> str | None:
        return (namespace or self.namespace()) if namespaced else None

    def ask(self, request: Request) -> Object:
        """One request of your own, from `client.requests`, and the object in its answer."""
        return self._drive(flows.ask(request))

    def _drive(self, flow: Flow[T]) -> T:
        try:
            step: Step = next(flow)
            while True:
                try:
                    answer = self._perform(step)
                except errors.IsthmusError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value

    def _perform(self, step: Step) -> Any:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        return self._transport.send(step)

    def _open(self, request: Request) -> Stream:
        stream = self._transport.stream(request)
        if stream.status >= 300:
            with stream:
                read(stream.answer())
        return stream


class JobHandle(JobFacts):
    """A job on a server."""

    def __init__(self, client: Client, obj: Object) -> None:
        super().__init__(obj)
        self._client = client

    def refresh(self) -> JobHandle:
        """Look again; raises NotFound if the job is gone or another one has its name."""
        found = self._client.get("jobs", self.name, namespace=self.namespace)
        if self.uid and found["metadata"].get("uid") != self.uid:
            raise errors.NotFound(f"job {self.name!r} was deleted, and another one has its name now")
        self.object = found
        return self

    def wait(self, timeout: float | None = None) -> JobHandle:
        """Wait until it has ended; raises TimeoutError if that takes longer than `timeout` seconds."""
        self.object = self._client.wait(self.name, timeout=timeout, namespace=self.namespace).object
        return self

    def logs(
        self, *, follow: bool = False, stream: str | None = None, tail: int | None = None, attempt: int | None = None
    ) -> Iterator[bytes]:
        """Its output as bytes."""
        return self._client.logs(
            self.name, follow=follow, stream=stream, tail=tail, attempt=attempt, namespace=self.namespace
        )

    def cancel(self) -> JobHandle:
        """Ask for its end."""
        self.object = self._client.cancel(self.name, namespace=self.namespace).object
        return self

    def outputs(self) -> Object:
        """What it left."""
        return self._client.outputs(self.name, namespace=self.namespace)

    def download(self, folder: str | os.PathLike[str] = HERE) -> list[str]:
        """Put what it left into a folder."""
        return self._client.download(self.name, folder, namespace=self.namespace)

    def read_output(self, path: str) -> bytes:
        """One file that it left."""
        return self._client.read_output(self.name, path, namespace=self.namespace)
