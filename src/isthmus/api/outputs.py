"""What a job left behind: a list of its files, one of them, or all of them as a tar that is made while it is sent."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from isthmus._kit.clock import parse_timestamp
from isthmus.errors import Cause, Invalid, NotFound
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import JOB
from isthmus.resources.trees import Tree, TreeFile
from isthmus.storage.packs import archive
from isthmus.store.base import Key

from .files import send_file
from .requests import caller_of, require
from .responses import json_response
from .streams import Stream

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from .context import Context

BASE = "/apis/isthmus.dev/v1/namespaces/{namespace}/jobs/{name}/outputs"
_MAX_LINKS = 40
_TEXT = (".txt", ".log", ".csv", ".tsv", ".json", ".yaml", ".yml", ".md", ".out", ".err", ".py", ".sh")


def routes(context: Context) -> list[BaseRoute]:
    """Where outputs are served."""

    async def listing(request: Request) -> Response:
        caller = await caller_of(request, context)
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        require(caller, "get", "jobs", namespace, name, "outputs")
        form = request.query_params.get("archive")
        if form not in (None, "tar"):
            message = f"{form[:40]!r} is not a form of archive; write tar"
            raise Invalid(f"archive: {message}", causes=(Cause("archive", message),))
        job, tree = await _tree(context, namespace, name)
        if form is None:
            files = [file.to_json() for file in tree.files]
            return json_response({"files": files, "bytes": tree.total_bytes})
        if missing := await context.blobs.missing(namespace, tree.digests):
            raise NotFound(f"{len(missing)} of the contents that job {name} left are no longer kept")
        moment = parse_timestamp(job.status.finished_at).timestamp() if job.status.finished_at else 0
        parts = archive(context.blobs, namespace, tree, moment)
        headers = {"Content-Disposition": f'attachment; filename="{name}.tar"'}
        return Stream(context, caller, parts, "application/x-tar", headers, whole=True)

    async def one(request: Request) -> Response:
        caller = await caller_of(request, context)
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        require(caller, "get", "jobs", namespace, name, "outputs")
        _, tree = await _tree(context, namespace, name)
        file = _resolve(tree, request.path_params["path"], name)
        media = "text/plain" if file.path.lower().endswith(_TEXT) else "application/octet-stream"
        path = context.blobs.path(namespace, file.digest or "")
        return send_file(request, path, file.digest or "", posixpath.basename(file.path), media)

    return [
        Route(BASE, listing, methods=["GET"]),
        Route(f"{BASE}/{{path:path}}", one, methods=["GET", "HEAD"]),
    ]


async def _tree(context: Context, namespace: str, name: str) -> tuple[Job, Tree]:
    record = await context.store.get(Key(JOB.name, namespace, name))
    job = Job.model_validate(record.obj)
    if job.status.outputs is None:
        if not job.status.phase.terminal:
            raise NotFound(
                f"job {name} has no outputs yet: it is {job.status.phase.value}; ask again when it has ended"
            )
        raise NotFound(f"job {name} left no outputs; name them in spec.outputs, such as out/*.csv")
    return job, await context.blobs.get_tree(namespace, job.status.outputs.tree)


def _resolve(tree: Tree, path: str, job: str) -> TreeFile:
    """The file at a path, through links that stay inside."""
    files = {file.path: file for file in tree.files}
    at = path
    for _ in range(_MAX_LINKS):
        file = files.get(at)
        if file is None:
            break
        if file.link is None:
            return file
        at = posixpath.normpath(posixpath.join(posixpath.dirname(at), file.link))
    raise NotFound(f"job {job} left no file {path[:200]!r}; GET its outputs for the list of files")
