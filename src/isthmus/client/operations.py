"""Everything that a client can do, written once: each method is a flow, and the client that it is called on drives it.

A method marked `operation` is written as a flow (see `flows`). On a `Client` it blocks and returns what the flow
returns; on an `AsyncClient` it is awaited for the same. One marked `feed` gives items one by one, with `for` or with
`async for`. Type checkers know which is which by the class that the method is taken from.
"""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from isthmus import errors

from . import flows, requests, resuming
from .answers import check
from .config import cache_home, find_access
from .experiments import CompareOptions, experiment_manifest
from .flows import Flow, Work
from .image_files import PackedFiles, image_files
from .jobs import STDIN_PATH, JobOptions, job_manifest, question, with_stdin
from .kubeconfigs import Access
from .missing_names import check_names
from .places import EXPERIMENTS, JOBS, Place, place_of
from .requests import Object, Request
from .requirements import read_requirements
from .resuming import Feed, LogCursor, WatchCursor, WatchEvent

if TYPE_CHECKING:
    from .asynchronous import AsyncClient, AsyncJobHandle
    from .folders import Folder, Notice, Progress
    from .sync import Client, JobHandle

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Handle = TypeVar("Handle")
Objects = list[Object]
HERE = "."
_FORCE = "force=True submits it all the same"


class Operation(Protocol[P, T_co]):
    """How a type checker sees a method marked `operation`."""

    @overload
    def __get__(self, owner: Client | JobHandle, kind: Any = ..., /) -> Callable[P, T_co]: ...
    @overload
    def __get__(
        self, owner: AsyncClient | AsyncJobHandle, kind: Any = ..., /
    ) -> Callable[P, Coroutine[Any, Any, T_co]]: ...


class Feeding(Protocol[P, T_co]):
    """How a type checker sees a method marked `feed`."""

    @overload
    def __get__(self, owner: Client | JobHandle, kind: Any = ..., /) -> Callable[P, Iterator[T_co]]: ...
    @overload
    def __get__(self, owner: AsyncClient | AsyncJobHandle, kind: Any = ..., /) -> Callable[P, AsyncIterator[T_co]]: ...


def operation(method: Callable[Concatenate[Any, P], Flow[T]]) -> Operation[P, T]:
    """A method whose flow is driven to its end."""
    _describe_result(method)

    @functools.wraps(method)
    def driven(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._drive(method(self, *args, **kwargs))

    return driven  # type: ignore[return-value]  # a function is a descriptor; what it answers depends on its owner


def feed(method: Callable[Concatenate[Any, P], Feed[T]]) -> Feeding[P, T]:
    """A method whose flow gives items."""
    _describe_result(method, "Iterator[{}]")

    @functools.wraps(method)
    def fed(self: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._feed(method(self, *args, **kwargs))

    return fed  # type: ignore[return-value]  # as above


def _describe_result(method: Callable[..., Any], form: str = "{}") -> None:
    """Let `help` show what comes of the method, not that it is written as a flow: `Flow[str]` becomes `str`."""
    reported = str(method.__annotations__["return"])
    method.__annotations__["return"] = form.format(reported.partition("[")[2].removesuffix("]"))


class Operations(ABC, Generic[Handle]):
    """A server, seen by one user. The two clients say how a flow is driven, and what stands for a job."""

    def __init__(self, url: str | None = None, token: str | None = None, namespace: str | None = None) -> None:
        self._begin(find_access(url, token, namespace))

    @classmethod
    def from_environment(cls) -> Self:
        """The same as without arguments: everything from the environment, a login, or the instance on this machine."""
        return cls()

    @classmethod
    def at(cls, access: Access) -> Self:
        """A client of exactly this server; nothing is looked up."""
        client = cls.__new__(cls)
        client._begin(access)
        return client

    def _begin(self, access: Access) -> None:
        self._access, self._namespace = access, access.namespace

    @abstractmethod
    def _handle(self, job: Object) -> Handle:
        """What stands for a job."""

    @abstractmethod
    def _drive(self, flow: Flow[Any]) -> Any:
        """What a flow returns, or the promise of it."""

    @abstractmethod
    def _feed(self, feed: Feed[Any]) -> Any:
        """The items of a feed, one by one."""

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._access.url

    @property
    def access(self) -> Access:
        """Where the server is and what opens it."""
        return self._access

    @operation
    def namespace(self) -> Flow[str]:
        """The tenant meant when none is named: the one given, or the token's own."""
        return (yield from self._tenant(None))

    def _tenant(self, namespace: str | None) -> Flow[str]:
        if namespace:
            return namespace
        if self._namespace is None:
            self._namespace = yield from flows.own_tenant()
        return self._namespace

    def _where(self, place: Place, namespace: str | None, everywhere: bool = False) -> Flow[str | None]:
        return (yield from self._tenant(namespace)) if place.namespaced and not everywhere else None

    # Jobs

    @operation
    def run(
        self,
        command: Sequence[str] | str | None = None,
        *,
        script: str | None = None,
        files: str | os.PathLike[str] | None = HERE,
        stdin: bytes | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        notice: Notice | None = None,
        namespace: str | None = None,
        force: bool = False,
        **options: Unpack[JobOptions],
    ) -> Flow[Handle]:
        """Start a command or a script, with a folder sent along, and answer at once with a handle.

        `files` is the folder; None sends nothing. The current folder, the default, is sent only if it is small;
        name it (`files=Path.cwd()`) to send it whatever its size. `stdin` is what it reads on standard input: bytes,
        or the path of a file. `notice` is called with what was left out unasked. The options are those of `JobOptions`.
        An image may be a file here (`oci-archive:FILE`), which is sent along too; `requirements` a file that is read. A
        site, device class or job that is named and does not exist is refused, because the job would wait for it;
        `force` submits it all the same.
        """
        options["requirements"] = read_requirements(options.get("requirements"))
        wanted = job_manifest(command, script, None, options)  # wrong words are reported before anything is sent
        if not force:
            yield from check_names((yield from self._tenant(namespace)), wanted, _FORCE)
        image = image_files(options.get("image"))
        if image is not None:
            options["image"] = image.name
        sent = yield from self._send(files, progress, notice, namespace, stdin, image)
        tenant = yield from self._tenant(namespace)
        job = with_stdin(job_manifest(command, script, sent, options), stdin)
        return self._handle((yield from flows.submit(tenant, job)))

    @operation
    def submit(self, job: Mapping[str, Any], *, namespace: str | None = None) -> Flow[Handle]:
        """Create a Job from its manifest, exactly once even if replies are lost on the way."""
        if not isinstance(job, Mapping):
            raise TypeError(f"submit takes a manifest as a dict, not {job!r:.80}; run(…) takes a command")
        tenant = yield from self._tenant(namespace or _namespace_in(job))
        return self._handle((yield from flows.submit(tenant, job)))

    @operation
    def send_folder(
        self,
        folder: str | os.PathLike[str] | None,
        *,
        image: PackedFiles | None = None,
        stdin: bytes | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        notice: Notice | None = None,
        namespace: str | None = None,
    ) -> Flow[Object]:
        """Send a folder; only what the server lacks goes over the wire. Answers tree (digest), count and bytes.

        `stdin` is sent as one more file of it, for a job that reads it on standard input; so are the files of `image`.
        """
        return (yield from self._send(folder, progress, notice, namespace, stdin, image))

    def _send(
        self,
        folder: str | os.PathLike[str] | None,
        progress: Progress | None,
        notice: Notice | None,
        namespace: str | None,
        stdin: bytes | os.PathLike[str] | None = None,
        image: PackedFiles | None = None,
    ) -> Flow[Object]:
        more = dict(image.files) if image else {}
        if stdin is None:
            return (yield from self._send_all(folder, progress, notice, namespace, image, more))
        from .standard_input import as_file

        with as_file(stdin) as path:
            return (yield from self._send_all(folder, progress, notice, namespace, image, more | {STDIN_PATH: path}))

    def _send_all(
        self,
        folder: str | os.PathLike[str] | None,
        progress: Progress | None,
        notice: Notice | None,
        namespace: str | None,
        image: PackedFiles | None,
        more: Mapping[str, str],
    ) -> Flow[Object]:
        from .folders import FolderLimits, read_folder, report_left_out, with_file  # not needed by most

        limits = FolderLimits() if folder == HERE else None
        found: Folder | None = None
        if folder is not None:
            without = image.source if image else None
            found = yield Work(lambda: read_folder(folder, limits=limits, cache_home=cache_home(), without=without))
            report_left_out(found, notice)
        for path, source in more.items():
            found = yield Work(partial(with_file, found, path, source))
        if found is None or not found.files:
            return {"tree": "", "count": 0, "bytes": 0}

        def pack(digests: Sequence[str]) -> requests.Body:
            from .packs import pack_body

            return pack_body(found.contents, digests, progress)

        tenant = yield from self._tenant(namespace)
        return (yield from flows.upload(tenant, found.contents, found.document, pack))

    @operation
    def job(self, name: str, *, namespace: str | None = None) -> Flow[Handle]:
        """A job by its name."""
        tenant = yield from self._tenant(namespace)
        return self._handle((yield from flows.ask(requests.get(JOBS, tenant, name))))

    @operation
    def jobs(
        self, *, phase: str | None = None, labels: str | None = None, namespace: str | None = None
    ) -> Flow[list[Handle]]:
        """The jobs, oldest first; of one phase, or with certain labels, if you say so."""
        tenant = yield from self._tenant(namespace)
        found, _ = yield from flows.everything(JOBS, tenant, labels, f"status.phase={phase}" if phase else None)
        return [self._handle(job) for job in _oldest_first(found, "metadata", "creationTimestamp")]

    @feed
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
    ) -> Feed[bytes]:
        """A job's output as bytes; with `follow` until the job has ended, over lost connections and more attempts."""
        tenant = yield from self._tenant(namespace)
        cursor = LogCursor(tenant, name, follow=follow, stream=stream, tail=tail, offset=offset, attempt=attempt)
        yield from resuming.read_log(cursor)

    @feed
    def read_log(self, cursor: LogCursor) -> Feed[bytes]:
        """The bytes after a cursor."""
        return resuming.read_log(cursor)

    @operation
    def wait(self, name: str, *, timeout: float | None = None, namespace: str | None = None) -> Flow[Handle]:
        """Wait until a job has ended; raises TimeoutError if it takes longer than `timeout` seconds."""
        tenant = yield from self._tenant(namespace)
        return self._handle((yield from resuming.wait(JOBS, tenant, name, timeout)))

    @operation
    def cancel(self, name: str, *, namespace: str | None = None) -> Flow[Handle]:
        """Ask for the end of a job; it is over when its phase says so."""
        return (yield from self._intend("Cancel", name, namespace))

    @operation
    def hold(self, name: str, *, namespace: str | None = None) -> Flow[Handle]:
        """Keep a job that has not started from starting."""
        return (yield from self._intend("Hold", name, namespace))

    @operation
    def release(self, name: str, *, namespace: str | None = None) -> Flow[Handle]:
        """Let a held job start."""
        return (yield from self._intend("Run", name, namespace))

    def _intend(self, intent: str, name: str, namespace: str | None) -> Flow[Handle]:
        tenant = yield from self._tenant(namespace)
        return self._handle((yield from flows.intend(intent, tenant, name)))

    @operation
    def plan(
        self,
        job: Mapping[str, Any] | str,
        *,
        deadline: str | None = None,
        late_cost_per_hour: float | None = None,
        namespace: str | None = None,
    ) -> Flow[Object]:
        """What would become of a job: a manifest, or the name of one that there is, perhaps with another deadline."""
        tenant = yield from self._tenant(namespace)
        answer = yield from flows.ask(requests.plan(tenant, question(job, deadline, late_cost_per_hour)))
        return dict(answer["status"])

    @operation
    def images(self, *, namespace: str | None = None, everywhere: bool = False) -> Flow[Object]:
        """What sites keep of container images: `items`, and in `unavailable` the sites that could not be asked."""
        tenant = None if everywhere else (yield from self._tenant(namespace))
        return (yield from flows.ask(requests.images(tenant)))

    @operation
    def remove_image(
        self, site: str, digest: str, *, namespace: str | None = None, everywhere: bool = False
    ) -> Flow[None]:
        """Remove a container image from a site; raises Conflict while a job uses it."""
        tenant = None if everywhere else (yield from self._tenant(namespace))
        yield from flows.ask(requests.remove_image(tenant, site, digest))

    @operation
    def outputs(self, name: str, *, namespace: str | None = None) -> Flow[Object]:
        """What a job left: `files`, each with path, size and digest, and `bytes` in all. Of an array, below indices."""
        return (yield from flows.outputs((yield from self._tenant(namespace)), name))

    @operation
    def download(
        self, name: str, folder: str | os.PathLike[str] = HERE, *, namespace: str | None = None
    ) -> Flow[list[str]]:
        """Put what a job left into a folder, and answer the paths. Files that are there already are replaced.

        Of an array, what each element left goes into a folder named by its index.
        """
        return (yield from flows.download((yield from self._tenant(namespace)), name, Path(folder)))

    @operation
    def read_output(self, name: str, path: str, *, namespace: str | None = None) -> Flow[bytes]:
        """One file that a job left."""
        return (yield from flows.read_output((yield from self._tenant(namespace)), name, path))

    @operation
    def files(self, name: str, *, namespace: str | None = None) -> Flow[Object]:
        """What is in the folder of a running job: `files`, each with path, kind, size and time; `complete` or not."""
        tenant = yield from self._tenant(namespace)
        return (yield from flows.ask(requests.working_files(tenant, name)))

    @feed
    def read_file(
        self, name: str, path: str, *, offset: int = 0, size: int | None = None, namespace: str | None = None
    ) -> Feed[bytes]:
        """One file of a running job as it is now, in pieces: from `offset`, at most `size` bytes."""
        tenant = yield from self._tenant(namespace)
        yield from resuming.read_working_file(tenant, name, path, offset, size)

    @operation
    def metrics(
        self, name: str, *, since: str | None = None, attempt: int | None = None, namespace: str | None = None
    ) -> Flow[Object]:
        """What was measured of a job so far: `series` of points, and a `cursor` to read on from with `since`."""
        tenant = yield from self._tenant(namespace)
        return (yield from flows.ask(requests.metrics(tenant, name, since, attempt)))

    # Experiments

    @operation
    def compare(
        self,
        command: Sequence[str] | str | None = None,
        *,
        script: str | None = None,
        files: str | os.PathLike[str] | None = HERE,
        progress: Progress | None = None,
        notice: Notice | None = None,
        namespace: str | None = None,
        force: bool = False,
        **options: Unpack[CompareOptions],
    ) -> Flow[Object]:
        """Start an Experiment: a command over devices and parameters, compared. The options are `CompareOptions`.

        A site or device class that is named and does not exist is refused; `force` submits it all the same.
        """
        wanted = experiment_manifest(command, script, None, options)  # wrong words are reported before anything is sent
        if not force:
            yield from check_names((yield from self._tenant(namespace)), wanted, _FORCE)
        sent = yield from self._send(files, progress, notice, namespace)
        tenant = yield from self._tenant(namespace)
        return (yield from flows.submit(tenant, experiment_manifest(command, script, sent, options), EXPERIMENTS))

    @operation
    def wait_experiment(self, name: str, *, timeout: float | None = None, namespace: str | None = None) -> Flow[Object]:
        """Wait until an experiment is over, and answer it; raises TimeoutError after `timeout` seconds."""
        return (yield from resuming.wait(EXPERIMENTS, (yield from self._tenant(namespace)), name, timeout))

    # Objects of any kind

    @operation
    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Flow[Object]:
        """One object."""
        place = place_of(kind)
        return (yield from flows.ask(requests.get(place, (yield from self._where(place, namespace)), name)))

    @operation
    def list(
        self,
        kind: str,
        *,
        labels: str | None = None,
        fields: str | None = None,
        namespace: str | None = None,
        everywhere: bool = False,
    ) -> Flow[Objects]:
        """All objects of a kind; `everywhere` looks into every tenant that you may see."""
        place = place_of(kind)
        tenant = yield from self._where(place, namespace, everywhere)
        try:
            items, _ = yield from flows.everything(place, tenant, labels, fields)
        except errors.Forbidden:
            if not (everywhere and place.namespaced):
                raise
            items = []
            for mine in (yield from flows.own_tenants()):
                items += (yield from flows.everything(place, mine, labels, fields))[0]
        return items

    @operation
    def apply(
        self, obj: Mapping[str, Any], *, dry_run: bool = False, namespace: str | None = None
    ) -> Flow[tuple[Object, str]]:
        """Create an object, or change the present one to it; answers it and `created`, `configured` or `unchanged`.

        In a dry run the server checks everything and keeps nothing.
        """
        place = flows.place_of_object(obj)
        tenant = yield from self._where(place, namespace or _namespace_in(obj))
        return (yield from flows.apply(place, tenant, obj, dry_run=dry_run))

    @operation
    def create(self, obj: Mapping[str, Any], *, dry_run: bool = False, namespace: str | None = None) -> Flow[Object]:
        """Create an object of any kind; in a dry run it is checked and not kept."""
        place = flows.place_of_object(obj)
        tenant = yield from self._where(place, namespace or _namespace_in(obj))
        return (yield from flows.ask(requests.create(place, tenant, obj, dry_run=dry_run)))

    @operation
    def patch(self, kind: str, name: str, change: Mapping[str, Any], *, namespace: str | None = None) -> Flow[Object]:
        """Change fields of an object; a field set to None is removed."""
        place = place_of(kind)
        return (yield from flows.ask(requests.patch(place, (yield from self._where(place, namespace)), name, change)))

    @operation
    def delete(
        self, kind: str, name: str, *, propagation: str | None = None, namespace: str | None = None
    ) -> Flow[Object]:
        """Delete an object; `propagation` is Background, Foreground or Orphan."""
        place = place_of(kind)
        tenant = yield from self._where(place, namespace)
        return (yield from flows.ask(requests.delete(place, tenant, name, propagation)))

    @feed
    def watch(
        self,
        kind: str,
        *,
        labels: str | None = None,
        fields: str | None = None,
        namespace: str | None = None,
        everywhere: bool = False,
        timeout: float | None = None,
    ) -> Feed[WatchEvent]:
        """The present objects as ADDED, then every change, for ever or for `timeout` seconds."""
        place = place_of(kind)
        tenant = yield from self._where(place, namespace, everywhere)
        yield from resuming.read_watch(WatchCursor(place, tenant, labels, fields), timeout)

    @feed
    def read_watch(self, cursor: WatchCursor, timeout: float | None = None) -> Feed[WatchEvent]:
        """The changes after a cursor."""
        return resuming.read_watch(cursor, timeout)

    @operation
    def events(self, name: str, *, kind: str = "Job", namespace: str | None = None) -> Flow[Objects]:
        """What happened to an object, oldest first."""
        place = place_of("events")
        fields = f"involvedObject.name={name},involvedObject.kind={kind}"
        found, _ = yield from flows.everything(place, (yield from self._where(place, namespace)), None, fields)
        return _oldest_first(found, "lastTimestamp")

    @operation
    def whoami(self) -> Flow[Object]:
        """Who the token is: `username` and `groups`."""
        review = yield from flows.ask(requests.whoami())
        return dict((review.get("status") or {}).get("userInfo") or {})

    @operation
    def version(self) -> Flow[Object]:
        """What the server is."""
        return (yield from flows.ask(requests.version()))

    @operation
    def authority(self) -> Flow[bytes]:
        """The certificate (PEM) of the authority that vouches for the server; raises NotFound if it needs none."""
        answer = yield from flows.call(requests.authority())
        check(answer)
        return answer.body

    @operation
    def read(self, request: Request) -> Flow[bytes]:
        """One request of your own, and its answer as it is."""
        answer = yield from flows.call(request)
        check(answer)
        return answer.body

    @operation
    def ask(self, request: Request) -> Flow[Object]:
        """One request of your own, from `client.requests`, and the object in its answer."""
        return (yield from flows.ask(request))


def _namespace_in(obj: Mapping[str, Any]) -> str | None:
    return (obj.get("metadata") or {}).get("namespace")


def _oldest_first(objects: Objects, *path: str) -> Objects:
    def when(obj: Any) -> str:
        for key in path:
            obj = obj.get(key)
        return str(obj or "")

    return sorted(objects, key=when)
