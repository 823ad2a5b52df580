"""Requests as data: what is asked, before anything is sent. Pure.

`repeatable` says that sending the same request twice does no harm: reads, writes of content under its own digest,
and patches that state what is wanted. Everything else is sent once, and `flows` finds out what became of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from isthmus import __version__

from .kubeconfigs import Access
from .places import JOBS, Place

Object = dict[str, Any]
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_SEGMENT_SAFE = "-._~:@"


class Body(NamedTuple):
    """A long body: its length, and a function that begins reading it anew."""

    length: int
    chunks: Callable[[], Iterator[bytes]]


class Request(NamedTuple):
    """One request to the server, relative to its base address."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | Body | None = None
    content_type: str = JSON
    repeatable: bool = False
    patience: float = 60.0
    """Seconds without a byte from the server after which it counts as not answering."""

    @property
    def target(self) -> str:
        """Path and query as they go over the wire."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


def headers_of(access: Access) -> dict[str, str]:
    """What every request to a server carries."""
    headers = {"User-Agent": f"isthmus/{__version__}", "Accept": "application/json"}
    if access.token:
        headers["Authorization"] = f"Bearer {access.token}"
    return headers


def path_of(place: Place, namespace: str | None, name: str | None = None, *below: str) -> str:
    """`/apis/…/namespaces/{ns}/{plural}/{name}/…`; namespace None means all of them, where there are any."""
    parts = [place.root]
    if place.namespaced and namespace is not None:
        parts += ["namespaces", _segment(namespace)]
    parts.append(place.plural)
    if name is not None:
        parts += [_segment(name), *below]
    return "/".join(parts)


def _segment(text: str) -> str:
    # A segment of dots would be resolved as a step up by proxies; escaping every dot keeps it what it is: a name.
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe=_SEGMENT_SAFE)


def get(place: Place, namespace: str | None, name: str) -> Request:
    """One object."""
    return Request("GET", path_of(place, namespace, name), repeatable=True)


def list_page(
    place: Place,
    namespace: str | None,
    *,
    labels: str | None = None,
    fields: str | None = None,
    limit: int | None = None,
    continue_: str | None = None,
) -> Request:
    """One page of a list."""
    query = _query(labelSelector=labels, fieldSelector=fields, limit=limit, **{"continue": continue_})
    return Request("GET", path_of(place, namespace), query, repeatable=True)


def watch(
    place: Place, namespace: str | None, version: str, *, labels: str | None = None, fields: str | None = None
) -> Request:
    """Changes after a version, as lines of JSON."""
    query = _query(
        watch="1", resourceVersion=version, allowWatchBookmarks="true", labelSelector=labels, fieldSelector=fields
    )
    return Request("GET", path_of(place, namespace), query, repeatable=True)


def create(place: Place, namespace: str | None, obj: Mapping[str, Any], *, dry_run: bool = False) -> Request:
    """A new object; in a dry run it is checked and not kept."""
    return Request("POST", path_of(place, namespace), _dry(dry_run), encode(obj), repeatable=dry_run)


def replace(place: Place, namespace: str | None, name: str, obj: Mapping[str, Any]) -> Request:
    """An object in place of the present one."""
    return Request("PUT", path_of(place, namespace, name), body=encode(obj))


def patch(place: Place, namespace: str | None, name: str, change: Mapping[str, Any]) -> Request:
    """A merge patch: it states what is wanted, so it may be repeated."""
    body = encode(change)
    return Request("PATCH", path_of(place, namespace, name), (), body, MERGE_PATCH, repeatable=True)


def _dry(wanted: bool) -> tuple[tuple[str, str], ...]:
    return (("dryRun", "All"),) if wanted else ()


def apply(place: Place, namespace: str | None, name: str, obj: Mapping[str, Any], *, dry_run: bool = False) -> Request:
    """Server-side apply: create the object or bring it to this, taking away what was applied before and is gone."""
    query = _query(fieldManager="isthmus", force="true") + _dry(dry_run)
    return Request("PATCH", path_of(place, namespace, name), query, encode(obj), APPLY_PATCH, repeatable=True)


def delete(place: Place, namespace: str | None, name: str, propagation: str | None = None) -> Request:
    """Delete an object."""
    return Request("DELETE", path_of(place, namespace, name), _query(propagationPolicy=propagation))


def whoami() -> Request:
    """Who the token is."""
    body = encode({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    return Request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", (), body, repeatable=True)


def ready() -> Request:
    """Whether the server can do all its work."""
    return Request("GET", "/readyz", repeatable=True, patience=10)


def version() -> Request:
    """What the server is."""
    return Request("GET", "/version", repeatable=True, patience=10)


def authority() -> Request:
    """The certificate of the authority that vouches for the server."""
    return Request("GET", "/.well-known/isthmus/ca.pem", repeatable=True, patience=10)


def log(
    namespace: str,
    name: str,
    *,
    follow: bool = False,
    offset: int | None = None,
    stream: str | None = None,
    tail: int | None = None,
    attempt: int | None = None,
) -> Request:
    """A job's output, as raw bytes."""
    query = _query(
        follow="true" if follow else None, offset=offset or None, stream=stream, tailLines=tail, attempt=attempt
    )
    return Request("GET", path_of(JOBS, namespace, name, "log"), query, repeatable=True)


def plan(namespace: str, question: Mapping[str, Any]) -> Request:
    """What would become of a job; nothing changes, so it may be asked again."""
    body = encode({"apiVersion": "isthmus.dev/v1", "kind": "Plan", "spec": question})
    return Request("POST", f"{JOBS.root}/namespaces/{_segment(namespace)}/plans", (), body, repeatable=True)


def images(namespace: str | None) -> Request:
    """What sites keep of container images: of a tenant's jobs, or all."""
    return Request("GET", _images(namespace), repeatable=True)


def remove_image(namespace: str | None, site: str, digest: str) -> Request:
    """Remove an image from a site."""
    return Request("DELETE", _images(namespace), _query(site=site, digest=digest))


def _images(namespace: str | None) -> str:
    return f"{JOBS.root}/namespaces/{_segment(namespace)}/images" if namespace else f"{JOBS.root}/images"


def metrics(namespace: str, name: str, since: str | None = None, attempt: int | None = None) -> Request:
    """What was measured of a job, after a cursor."""
    query = _query(since=since, attempt=attempt)
    return Request("GET", path_of(JOBS, namespace, name, "metrics"), query, repeatable=True)


def missing(namespace: str, digests: Sequence[str]) -> Request:
    """Which contents the server does not have."""
    body = encode({"digests": list(digests)})
    return Request("POST", _files(namespace, "missing"), (), body, repeatable=True)


def pack(namespace: str, body: Body) -> Request:
    """Contents, as one tar stream."""
    return Request("POST", _files(namespace, "pack"), (), body, "application/x-tar", True, 600.0)


def tree(namespace: str, document: bytes) -> Request:
    """A folder: which content is at which path."""
    return Request("PUT", _files(namespace, "tree"), (), document, repeatable=True, patience=600.0)


def outputs(namespace: str, name: str) -> Request:
    """What the job left."""
    return Request("GET", path_of(JOBS, namespace, name, "outputs"), repeatable=True)


def output(namespace: str, name: str, path: str) -> Request:
    """One file that the job left."""
    parts = [_segment(part) for part in path.split("/")]
    return Request("GET", path_of(JOBS, namespace, name, "outputs", *parts), repeatable=True)


def outputs_archive(namespace: str, name: str) -> Request:
    """All files that the job left, as a tar stream."""
    return Request("GET", path_of(JOBS, namespace, name, "outputs"), (("archive", "tar"),), repeatable=True)


def working_files(namespace: str, name: str) -> Request:
    """What is in the job's folder now."""
    return Request("GET", path_of(JOBS, namespace, name, "files"), repeatable=True)


def working_file(namespace: str, name: str, path: str, offset: int, size: int | None) -> Request:
    """Part of one file in the job's folder."""
    parts = [_segment(part) for part in path.split("/")]
    query = _query(offset=offset or None, limitBytes=size)
    return Request("GET", path_of(JOBS, namespace, name, "files", *parts), query, repeatable=True)


def encode(obj: Any) -> bytes:
    """JSON as sent."""
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()


def _files(namespace: str, word: str) -> str:
    return f"{JOBS.root}/namespaces/{_segment(namespace)}/files/{word}"


def _query(**values: str | int | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in values.items() if value is not None and value != "")
