"""What a job left behind: a list of its files, one of them, or all of them as a tar that is made while it is sent."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from starlette.responses import Response

from isthmus._kit.clock import parse_timestamp
from isthmus.api.files import send_file
from isthmus.api.responses import json_response
from isthmus.api.streams import StreamedAnswer
from isthmus.errors import Cause, Invalid, NotFound
from isthmus.resources.jobs import Job
from isthmus.resources.work.trees import Tree, TreeFile
from isthmus.storage.packs import archive

from .finding import find_run, kinds_with_runs, run_route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from isthmus.api.context import Context
    from isthmus.resources.kinds import Kind

_MAX_LINKS = 40
_TEXT = (".txt", ".log", ".csv", ".tsv", ".json", ".yaml", ".yml", ".md", ".out", ".err", ".py", ".sh")


def routes(context: Context) -> list[BaseRoute]:
    """Where outputs are served."""

    async def listing(request: Request, kind: Kind) -> Response:
        run = await find_run(context, request, kind, "outputs")
        namespace, name = run.job.namespace, run.job.name
        form = request.query_params.get("archive")
        if form not in (None, "tar"):
            message = f"{form[:40]!r} is not a form of archive; write tar"
            raise Invalid(f"archive: {message}", causes=(Cause("archive", message),))
        job, tree = run.job, await _tree(context, run.job)
        if form is None:
            files = [file.to_json() for file in tree.files]
            return json_response({"files": files, "bytes": tree.total_bytes})
        if missing := await context.blobs.missing(namespace, tree.digests):
            raise NotFound(f"{len(missing)} of the contents that job {name} left are no longer kept")
        moment = parse_timestamp(job.status.finished_at).timestamp() if job.status.finished_at else 0
        parts = archive(context.blobs, namespace, tree, moment)
        headers = {"Content-Disposition": f'attachment; filename="{name}.tar"'}
        return StreamedAnswer(context, run.caller, parts, "application/x-tar", headers, whole=True)

    async def one(request: Request, kind: Kind) -> Response:
        run = await find_run(context, request, kind, "outputs")
        namespace, name = run.job.namespace, run.job.name
        tree = await _tree(context, run.job)
        file = _resolve(tree, request.path_params["path"], name)
        media = "text/plain" if file.path.lower().endswith(_TEXT) else "application/octet-stream"
        path = context.blobs.path(namespace, file.digest or "")
        return send_file(request, path, file.digest or "", posixpath.basename(file.path), media)

    found: list[BaseRoute] = []
    for kind in kinds_with_runs():
        found.append(run_route(kind, "outputs", listing))
        found.append(run_route(kind, "outputs/{path:path}", one, methods=("GET", "HEAD")))
    return found


async def _tree(context: Context, job: Job) -> Tree:
    name = job.name
    if job.status.outputs is None:
        if not job.status.phase.terminal:
            raise NotFound(
                f"job {name} has no outputs yet: it is {job.status.phase.value}; ask again when it has ended"
            )
        raise NotFound(f"job {name} left no outputs; name them in spec.outputs, such as out/*.csv")
    return await context.blobs.get_tree(job.namespace, job.status.outputs.tree)


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
