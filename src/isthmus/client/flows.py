"""Whatever takes more than one exchange, written once for both clients: generators that yield what to do.

A flow yields a `Request` and is given its `Answer`, or yields another step (below) and is given what that says. A step
that fails raises inside the flow, which may then decide to look, to wait and to try again. The clients drive flows;
they decide nothing.

**Submission happens exactly once.** The client draws the job's name and a mark before it sends anything. When a
reply is lost it looks the name up: the mark says whether the job there is ours. Sending again is safe because a
name can be taken only once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from isthmus import errors
from isthmus._kit.ids import new_uid, suffix

from . import requests
from .answers import Answer, check, read
from .places import JOBS, Place, places
from .requests import Body, Object, Request

T = TypeVar("T")
MARK = "isthmus.dev/submission"
ARRAY_LABEL = "isthmus.dev/array"
INDEX_LABEL = "isthmus.dev/array-index"
TERMINAL = frozenset({"Succeeded", "Failed", "Cancelled"})
DEFAULT_NAMESPACE = "default"
_TRIES = 4
_SUBMIT_TRIES = 12
_BATCH = 10_000
_PAGE = 500


class Pause(NamedTuple):
    """Wait this long before going on."""

    seconds: float


class Work(NamedTuple):
    """Something that holds the processor or the disk for a while; gives what it returns."""

    do: Callable[[], Any]


class Open(NamedTuple):
    """Begin an answer that is read along, in place of the one before; gives its headers."""

    request: Request


class Read(NamedTuple):
    """The next bytes of the open answer, none at its end. Raises TimeoutError after so many seconds."""

    within: float | None = None


class Extract(NamedTuple):
    """Put an archive into a folder as it comes, each path after `below`; gives the paths."""

    request: Request
    folder: Path
    below: str


Step = Request | Pause | Work | Open | Read | Extract
Flow = Generator[Step, Any, T]


def backoff(failures: int, longest: float = 5.0) -> float:
    """Seconds to wait after so many failures in a row: 0.1, 0.2, 0.4 … up to `longest`."""
    return float(min(0.1 * 2 ** min(failures - 1, 16), longest))


def call(request: Request) -> Flow[Answer]:
    """One exchange. A repeatable request that meets a busy or vanishing server is sent again, a few times."""
    for failures in range(1, _TRIES + 1):
        try:
            answer: Answer = yield request
            read_error_if_transient(answer)
            return answer
        except errors.Unreachable:
            raise
        except errors.Unavailable as error:
            if not request.repeatable or failures == _TRIES:
                raise
            yield Pause(min(error.retry_after or backoff(failures), 5.0))
    raise AssertionError("the loop returns or raises")


def read_error_if_transient(answer: Answer) -> None:
    """Raise what the server reports when it may pass by itself."""
    if answer.status in (429, 502, 503, 504):
        read(answer)


def ask(request: Request) -> Flow[Object]:
    """One exchange whose answer is an object."""
    return read((yield from call(request)))


def everything(
    place: Place, namespace: str | None, labels: str | None, fields: str | None
) -> Flow[tuple[list[Object], str]]:
    """All objects of a list, page by page, and the version to watch from. A list that expires is begun again."""
    while True:
        items: list[Object] = []
        version, token = "", None
        try:
            while True:
                page = yield from ask(
                    requests.list_page(place, namespace, labels=labels, fields=fields, limit=_PAGE, continue_=token)
                )
                items += [with_kind(place, item) for item in page.get("items") or ()]
                meta = page.get("metadata") or {}
                version = version or str(meta.get("resourceVersion", ""))
                token = meta.get("continue") or None
                if token is None:
                    return items, version
        except errors.Expired:
            yield Pause(0.1)


def with_kind(place: Place, obj: Object) -> Object:
    """The object with its kind: Kubernetes leaves it out of the items of a list."""
    return {"apiVersion": place.api_version, "kind": place.kind, **obj}


def submit(namespace: str, job: Mapping[str, Any], place: Place = JOBS) -> Flow[Object]:
    """Create a job (or another kind of work) exactly once; see the module docstring."""
    wanted = copy.deepcopy(dict(job))
    meta = wanted.setdefault("metadata", {})
    prefix = None if meta.get("name") else meta.pop("generateName", None) or f"{place.kind.lower()}-"
    mark = new_uid()
    meta["annotations"] = {**(meta.get("annotations") or {}), MARK: mark}
    lost = False
    for failures in range(1, _SUBMIT_TRIES + 1):
        if prefix and not lost:
            meta["name"] = f"{prefix}{suffix()}"
        try:
            answer: Answer = yield requests.create(place, namespace, wanted)
            return read(answer)
        except errors.AlreadyExists:
            found = yield from _ours(place, namespace, meta["name"], mark)
            if found:
                return found
            if not prefix:
                raise
            lost = False
        except errors.Unavailable as error:
            if isinstance(error, errors.Unreachable) and not lost:
                raise
            lost = True
            yield Pause(error.retry_after or backoff(failures))
            try:
                found = yield from _ours(place, namespace, meta["name"], mark)
            except errors.Unavailable:
                continue
            if found:
                return found
    raise errors.Unavailable(
        f"the server did not say whether it accepted {place.kind.lower()} {meta['name']!r}; "
        f"look with `isthmus {place.kind.lower()} {meta['name']}` before submitting it again"
    )


def _ours(place: Place, namespace: str, name: str, mark: str) -> Flow[Object | None]:
    try:
        found = yield from ask(requests.get(place, namespace, name))
    except errors.NotFound:
        return None
    annotations = (found.get("metadata") or {}).get("annotations") or {}
    return found if annotations.get(MARK) == mark else None


def upload(
    namespace: str,
    contents: Mapping[str, Any],
    document: bytes,
    pack: Callable[[Sequence[str]], Body],
) -> Flow[Object]:
    """Send a folder: only the contents the server lacks, in one pack, then the tree. Answers digest, count, bytes."""
    digests = sorted(contents)
    lacking: list[str] = []
    for start in range(0, len(digests), _BATCH):
        answer = yield from ask(requests.missing(namespace, digests[start : start + _BATCH]))
        lacking += [str(digest) for digest in answer.get("missing") or ()]
    if lacking:
        yield from ask(requests.pack(namespace, pack(lacking)))
    return (yield from ask(requests.tree(namespace, document)))


class OutputPart(NamedTuple):
    """A job that left outputs, and what goes before their paths: of an array, the index of each element."""

    below: str
    job: str


def parts(namespace: str, name: str) -> Flow[list[OutputPart]]:
    """The jobs whose outputs are those of a job: itself, or the elements of an array, in the order of their indices."""
    job = yield from ask(requests.get(JOBS, namespace, name))
    if not (job.get("spec") or {}).get("array"):
        return [OutputPart("", name)]
    uid = job["metadata"].get("uid")
    # A label holds at most 63 characters; the owner distinguishes arrays whose names begin alike.
    elements, _ = yield from everything(JOBS, namespace, f"{ARRAY_LABEL}={name[:63].rstrip('-.')}", None)
    found: list[tuple[int, str]] = []
    for element in elements:
        meta, status = element["metadata"], element.get("status") or {}
        owned = any(owner.get("uid") == uid for owner in meta.get("ownerReferences") or ())
        if owned and (status.get("outputs") or {}).get("count"):
            found.append((index_of(element), str(meta["name"])))
    if not found:
        yet = "" if (job.get("status") or {}).get("phase") in TERMINAL else " yet"
        raise errors.NotFound(f"no element of array {name} has left outputs{yet}; name them in spec.outputs")
    return [OutputPart(f"{index}/", element) for index, element in sorted(found)]


def index_of(element: Mapping[str, Any]) -> int:
    """Which element of its array a job is."""
    text = str((element["metadata"].get("labels") or {}).get(INDEX_LABEL) or 0)
    return int(text) if text.isdigit() else 0


def outputs(namespace: str, name: str) -> Flow[Object]:
    """What a job left; of an array, what each element left, below its index."""
    files: list[Object] = []
    size = 0
    for part in (yield from parts(namespace, name)):
        found = yield from ask(requests.outputs(namespace, part.job))
        files += [{**file, "path": f"{part.below}{file['path']}"} for file in found.get("files") or ()]
        size += int(found.get("bytes") or 0)
    return {"files": files, "bytes": size}


def download(namespace: str, name: str, folder: Path) -> Flow[list[str]]:
    """Put what a job left into a folder, and answer the paths."""
    written: list[str] = []
    for part in (yield from parts(namespace, name)):
        written += yield Extract(requests.outputs_archive(namespace, part.job), folder, part.below)
    return written


def read_output(namespace: str, name: str, path: str) -> Flow[bytes]:
    """One file that a job left; of an array, `3/out.csv` is the file of its element 3."""
    answer = yield from call(requests.output(namespace, name, path))
    index, slash, rest = path.partition("/")
    if answer.status == 404 and slash and index.isdigit():
        found = yield from parts(namespace, name)
        part = next((part for part in found if part.below == f"{index}/"), None)
        if part is not None:
            answer = yield from call(requests.output(namespace, part.job, rest))
    check(answer)
    return bytes(answer.body)


def own_tenants() -> Flow[list[str]]:
    """The tenants in which the caller has a role."""
    review = yield from ask(requests.whoami())
    groups = ((review.get("status") or {}).get("userInfo") or {}).get("groups") or []
    return _tenants_in(str(group) for group in groups)


def own_tenant() -> Flow[str]:
    """The tenant that the token is for: the namespace meant when none is named."""
    review = yield from ask(requests.whoami())
    groups = ((review.get("status") or {}).get("userInfo") or {}).get("groups") or []
    return namespace_of([str(group) for group in groups])


def namespace_of(groups: Sequence[str]) -> str:
    """The one namespace in a caller's groups (`isthmus:<tenant>:<role>`)."""
    tenants = _tenants_in(groups)
    if len(tenants) == 1:
        return tenants[0]
    if any(group.startswith("isthmus:platform:") for group in groups) or DEFAULT_NAMESPACE in tenants:
        return DEFAULT_NAMESPACE
    if tenants:
        raise errors.Invalid(
            f"you belong to several tenants ({', '.join(tenants)}); say which one with --namespace or ISTHMUS_NAMESPACE"
        )
    raise errors.Forbidden("your token belongs to no tenant; ask an administrator to add you to one")


def _tenants_in(groups: Iterable[str]) -> list[str]:
    roles = [parts for group in groups if len(parts := group.split(":")) == 3 and parts[0] == "isthmus"]
    return sorted({tenant for _, tenant, _ in roles if tenant not in ("platform", "isthmus-system")})


def apply(
    place: Place, namespace: str | None, obj: Mapping[str, Any], *, dry_run: bool = False
) -> Flow[tuple[Object, str]]:
    """Create the object, or bring the present one to it. Answers the object and created, configured or unchanged."""
    name = (obj.get("metadata") or {}).get("name")
    if not name:
        return (yield from ask(requests.create(place, namespace, obj, dry_run=dry_run))), "created"
    try:
        before = _version((yield from ask(requests.get(place, namespace, name))))
    except errors.NotFound:
        before = None
    wanted = {"apiVersion": place.api_version, "kind": place.kind, **obj}
    after = yield from ask(requests.apply(place, namespace, name, wanted, dry_run=dry_run))
    if before is None:
        return after, "created"
    return after, "unchanged" if _version(after) == before else "configured"


def intend(intent: str, namespace: str, name: str) -> Flow[Object]:
    """Say what is wanted of a job: Run, Hold or Cancel."""
    return ask(requests.patch(JOBS, namespace, name, {"spec": {"intent": intent}}))


def _version(obj: Mapping[str, Any]) -> Any:
    return (obj.get("metadata") or {}).get("resourceVersion")


def place_of_object(obj: Mapping[str, Any]) -> Place:
    """The place of a manifest; raises Invalid that says what is missing."""
    kind = obj.get("kind")
    for place in places():
        if place.kind == kind:
            if obj.get("apiVersion") not in (None, place.api_version):
                raise errors.Invalid(f"{kind} has apiVersion {obj.get('apiVersion')!r}; write {place.api_version}")
            return place
    known = ", ".join(place.kind for place in places())
    if not kind:
        raise errors.Invalid(f"the manifest has no kind; write kind: Job, or one of {known}")
    raise errors.Invalid(f"the manifest has kind {kind!r}; the kinds are {known}")
