"""One job: its state and why, its output, its files, and what can be done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from isthmus._kit.reasons import Reasons, read_reasons
from isthmus.client.jobs import copied
from isthmus.console.calling import in_tenant
from isthmus.console.index import what_runs
from isthmus.console.rendering import HEADERS, render
from isthmus.console.visits import BASE, Visit, back_to
from isthmus.errors import NotFound
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import ARRAY_LABEL

from .streams import Forwarded

_SHOWN_FILES = 500
_SHOWN_EVENTS = 100
_SHOWN_ELEMENTS = 500
_WAITING = (JobPhase.PENDING, JobPhase.QUEUED, JobPhase.PLACED)
_MERGED = (("stdout", "Log", "Output of the job"),)
_SEPARATE = (
    ("stdout", "Standard output", "Output of the job"),
    ("stderr", "Standard error", "Standard error of the job"),
)
"""The streams that are shown: name in the API, title, and what a screen reader says."""
PREVIEW_BYTES = 512 * 1024
_IMAGES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
_PICTURE_HEADERS = {
    **HEADERS,
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'",
    "Content-Disposition": "inline",
}


async def job(visit: Visit) -> Response:
    """The page."""
    namespace, name = _named(visit)
    path = in_tenant(namespace, "jobs", name)
    found, events = await asyncio.gather(visit.asker.get(path), _events(visit, namespace, name))
    files: dict[str, Any] = {}
    if (found.get("status") or {}).get("outputs"):
        try:
            files = await visit.asker.get(f"{path}/outputs")
        except NotFound as error:
            files = {"problem": error.message}
    elements = []
    if found["spec"].get("array"):
        elements = await _elements(visit, namespace, name)
    status = found.get("status") or {}
    phase = JobPhase(status.get("phase") or "Pending")
    message = status.get("message") or ""
    return render(
        visit,
        "job.html",
        job=found,
        status=status,
        over=phase.terminal,
        why=read_reasons(message) if phase in _WAITING else Reasons(message),
        why_there=read_reasons(status.get("siteMessage") or ""),
        what=what_runs(found["spec"]),
        outputs_of=_SEPARATE if found["spec"].get("streams") == "Separate" else _MERGED,
        part_of=_part_of(found),
        events=events,
        files=files.get("files", [])[:_SHOWN_FILES],
        file_count=len(files.get("files", [])),
        files_problem=files.get("problem", ""),
        elements=elements,
        may_change=visit.may("patch", "jobs", namespace, name),
        manifest=copied(found, name),
    )


def _part_of(job: Mapping[str, Any]) -> tuple[str, str] | None:
    """The array or the experiment that made it: the section it is in, and its name."""
    for owner in job["metadata"].get("ownerReferences") or ():
        if owner.get("kind") in ("Job", "Experiment"):
            return ("jobs" if owner["kind"] == "Job" else "experiments"), str(owner["name"])
    return None


async def _events(visit: Visit, namespace: str, name: str) -> list[dict[str, Any]]:
    query = f"fieldSelector=involvedObject.kind=Job,involvedObject.name={name}"
    listed = await visit.asker.get(f"/api/v1/namespaces/{namespace}/events", query)
    found: list[dict[str, Any]] = sorted(listed["items"], key=lambda e: e.get("lastTimestamp") or "", reverse=True)
    return found[:_SHOWN_EVENTS]


async def _elements(visit: Visit, namespace: str, name: str) -> list[dict[str, Any]]:
    query = f"labelSelector={ARRAY_LABEL}={name[:63].rstrip('-.')}&limit={_SHOWN_ELEMENTS}"
    listed = await visit.asker.get(in_tenant(namespace, "jobs"), query)
    return sorted(listed["items"], key=lambda item: (len(item["metadata"]["name"]), item["metadata"]["name"]))


async def change(visit: Visit) -> Response:
    """Cancel, hold or release it."""
    await visit.form()
    namespace, name = _named(visit)
    intent = {"cancel": "Cancel", "hold": "Hold", "release": "Run"}.get(visit.request.path_params["action"])
    if intent is None:
        raise HTTPException(404, "a job can be cancelled, held and released")
    await visit.asker.patch(in_tenant(namespace, "jobs", name), {"spec": {"intent": intent}})
    return back_to(_page(namespace, name))


async def delete(visit: Visit) -> Response:
    """Delete it, with its log and outputs."""
    await visit.form()
    namespace, name = _named(visit)
    await visit.asker.ask("DELETE", in_tenant(namespace, "jobs", name))
    return back_to(f"{BASE}/jobs")


async def again(visit: Visit) -> Response:
    """The same once more, under a new name."""
    await visit.form()
    namespace, name = _named(visit)
    found = await visit.asker.get(in_tenant(namespace, "jobs", name))
    made = await visit.asker.ask("POST", in_tenant(namespace, "jobs"), copied(found))
    return back_to(_page(namespace, made["metadata"]["name"]))


async def view(visit: Visit) -> Response:
    """One file that the job left, shown as text or as an image, never as a page."""
    namespace, name = _named(visit)
    path = visit.request.path_params["path"]
    listed = await visit.asker.get(in_tenant(namespace, "jobs", name, "outputs"))
    file = next((f for f in listed["files"] if f["path"] == path and f.get("digest")), None)
    if file is None:
        raise NotFound(f"job {name} left no file {path[:200]!r} that can be shown")
    content = visit.parts.context.blobs.path(namespace, file["digest"])
    kind = next((media for end, media in _IMAGES.items() if path.lower().endswith(end)), "")
    if kind and visit.query.get("raw"):
        return FileResponse(content, headers=_PICTURE_HEADERS, media_type=kind)
    data = b"" if kind else await asyncio.to_thread(_head, content)
    return _show_file(visit, file, data, f"download/{quote(path)}", image=bool(kind))


def _show_file(
    visit: Visit, file: Mapping[str, Any], data: bytes, download: str, *, image: bool = False, running: bool = False
) -> Response:
    namespace, name = _named(visit)
    binary = b"\0" in data
    text = "" if binary else data[:PREVIEW_BYTES].decode(errors="replace")
    values: dict[str, Any] = {"file": file, "image": image, "binary": binary, "running": running}
    cut = len(data) > PREVIEW_BYTES
    return render(visit, "file.html", job=name, namespace=namespace, text=text, cut=cut, download=download, **values)


async def working(visit: Visit) -> Response:
    """The files of a job while it runs, as they are now."""
    namespace, name = _named(visit)
    found = await visit.asker.get(in_tenant(namespace, "jobs", name, "files"))
    files = found["files"][:_SHOWN_FILES]
    complete = found["complete"] and len(found["files"]) <= _SHOWN_FILES
    return render(visit, "working.html", job=name, namespace=namespace, files=files, complete=complete)


async def working_file(visit: Visit) -> Response:
    """One file of a running job: shown as text, or handed over."""
    namespace, name = _named(visit)
    path = visit.request.path_params["path"]
    source = in_tenant(namespace, "jobs", name, "files", path)
    if visit.query.get("download"):
        return Forwarded(visit, source, b"")
    data = await visit.asker.content(source, f"limitBytes={PREVIEW_BYTES + 1}")
    file = {"path": path, "size": None}
    return _show_file(visit, file, data, f"working/{quote(path)}?download=1", running=True)


def _head(path: Any) -> bytes:
    with path.open("rb") as file:
        data: bytes = file.read(PREVIEW_BYTES + 1)
    return data


def _named(visit: Visit) -> tuple[str, str]:
    return visit.request.path_params["namespace"], visit.request.path_params["name"]


def _page(namespace: str, name: str) -> str:
    return f"{BASE}/jobs/{namespace}/{name}"


PAGES = (
    ("GET", "/jobs/{namespace}/{name}", job),
    ("GET", "/jobs/{namespace}/{name}/files/{path:path}", view),
    ("GET", "/jobs/{namespace}/{name}/working", working),
    ("GET", "/jobs/{namespace}/{name}/working/{path:path}", working_file),
    ("POST", "/jobs/{namespace}/{name}/again", again),
    ("POST", "/jobs/{namespace}/{name}/delete", delete),
    ("POST", "/jobs/{namespace}/{name}/{action}", change),
)
