"""Files of a job while it runs: a list of them, or one of them, as they are now. Nothing can be changed.

The folder is the job's own and changes while it is read. So a list is what there was at about one moment, and a file is
sent up to the length that it had when it was asked for; if another file takes its place meanwhile, the answer breaks
off.
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from isthmus._kit.clock import timestamp
from isthmus.api.files import attachment
from isthmus.api.responses import json_response
from isthmus.api.streams import StreamedAnswer
from isthmus.engines.base import FilePart, WorkFile
from isthmus.errors import Conflict, EngineRefused, Invalid, NotFound, TooLarge, Unavailable
from isthmus.resources.jobs import Job
from isthmus.resources.work.trees import check_path

from .finding import find_run, kinds_with_runs, run_route
from .log_queries import MAX_OFFSET, number_in

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from isthmus.api.context import Context, Folders
    from isthmus.resources.kinds import Kind

MOST_LISTED = 10_000
PIECE = 2**20


def routes(context: Context) -> list[BaseRoute]:
    """Where the files of running jobs are served."""

    async def listing(request: Request, kind: Kind) -> Response:
        run = await find_run(context, request, kind, "files")
        folders = _offered(context, run.job)
        try:
            found = await folders.list_files(run.job, MOST_LISTED)
        except (NotFound, EngineRefused) as error:
            raise _why_not(run.job, error) from None
        files = [_as_json(file) for file in found.files]
        attempt = run.job.status.attempt
        return json_response({"attempt": attempt, "complete": found.complete, "files": files})

    async def one(request: Request, kind: Kind) -> Response:
        run = await find_run(context, request, kind, "files")
        folders = _offered(context, run.job)
        path = request.path_params["path"]
        offset = number_in(request.query_params, "offset", 0, MAX_OFFSET) or 0
        limit = number_in(request.query_params, "limitBytes", 1, MAX_OFFSET)
        try:
            check_path(path)
            first = await folders.read_file(run.job, path, offset, min(PIECE, limit or PIECE))
        except ValueError:
            raise NotFound(f"job {run.job.name} has no file {path[:200]!r}: it is no path in its folder") from None
        except (NotFound, EngineRefused) as error:
            raise _why_not(run.job, error) from None
        wanted = min(max(0, first.size - offset), limit or MAX_OFFSET)
        if wanted > context.limits.file_bytes:
            raise TooLarge(f"{path[:200]!r} has {first.size} bytes; ask for a part of it with offset and limitBytes")
        headers = attachment(posixpath.basename(path)) | {"Content-Length": str(wanted)}
        headers["Isthmus-File-Size"] = str(first.size)
        parts = _parts(folders, run.job, path, first, offset, wanted)
        return StreamedAnswer(context, run.caller, parts, "application/octet-stream", headers, whole=True)

    found: list[BaseRoute] = []
    for kind in kinds_with_runs():
        found.append(run_route(kind, "files", listing))
        found.append(run_route(kind, "files/{path:path}", one))
    return found


def _offered(context: Context, job: Job) -> Folders:
    if context.folders is None:
        raise NotFound("the files of running jobs are not offered here")
    if job.spec.array is not None:
        raise Invalid(f"job {job.name} is an array; ask for the files of an element, such as {job.name}-0")
    return context.folders


def _why_not(job: Job, error: NotFound | EngineRefused) -> NotFound | Conflict:
    """What is said of a folder that cannot be seen, or of a file that is not in it."""
    if job.status.phase.terminal:
        return NotFound(
            f"job {job.name} is over and its folder is gone; `isthmus outputs {job.name}` lists what it left"
        )
    if isinstance(error, EngineRefused):
        return Conflict(error.message)
    if job.status.started_at is None:
        return NotFound(f"job {job.name} has not started; its files can be seen while it runs")
    return error


def _as_json(file: WorkFile) -> dict[str, object]:
    moment = datetime.fromtimestamp(min(max(file.modified, 0), 253402300799), UTC)
    return {"path": file.path, "kind": file.kind.value, "size": file.size, "modified": timestamp(moment)}


async def _parts(
    folders: Folders, job: Job, path: str, first: FilePart, offset: int, left: int
) -> AsyncGenerator[bytes, None]:
    part = first
    while left:
        data = part.data[:left]
        if not data or part.mark != first.mark:
            raise Unavailable(f"{path[:200]!r} became shorter, or another file, while it was read; ask again")
        yield data
        offset, left = offset + len(data), left - len(data)
        if left:
            part = await folders.read_file(job, path, offset, min(PIECE, left))
