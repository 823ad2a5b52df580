"""Series of runs: `GET …/jobs/{name}/metrics`, at once or live as server-sent events; and whole tenants for scrapers.

An answer holds the points after the cursor `since` and the next cursor; `reset` says that it holds everything from the
start. A follower is sent what is new about once a second until the run is over. Many followers of one job cost one
reading of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from isthmus._kit.clock import parse_timestamp
from isthmus.api.requests import caller_of, require
from isthmus.api.streams import EVENT_STREAM, KEEP_ALIVE, KEEP_ALIVE_SECONDS, StreamedAnswer, event
from isthmus.errors import Invalid, IsthmusError, NotFound, Unavailable
from isthmus.resources.experiments import EXPERIMENT_LABEL
from isthmus.resources.frame.selectors import EVERYTHING, parse_fields
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import JOB
from isthmus.store.base import Query, Record
from isthmus.telemetry.exporting import Labelled, influx, prometheus
from isthmus.telemetry.journals import POWER, UNITS
from isthmus.telemetry.series import Found
from isthmus.telemetry.updating import Telemetry, is_over, read_safely

from .finding import find_run, kinds_with_runs, run_route
from .following import JobFollowers

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from isthmus.api.context import Context
    from isthmus.resources.kinds import Kind

BASE = "/apis/isthmus.dev/v1/namespaces/{namespace}"
EVERYWHERE = "/apis/isthmus.dev/v1"
LOOK_SECONDS = 1.0
MAX_JOBS = 1000
"""Jobs in one export."""
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def routes(context: Context) -> list[BaseRoute]:
    """Where series are served."""
    followers = JobFollowers(context.store)

    async def metrics(request: Request, kind: Kind) -> Response:
        run = await find_run(context, request, kind, "metrics")
        caller, record, job = run.caller, run.record, run.job
        follow = _follows(request)
        since = request.headers.get("last-event-id") or request.query_params.get("since")
        attempt = _attempt(request, job)
        telemetry = _telemetry(context)
        if follow:
            parts = _events(telemetry, followers, record, attempt, since)
            return StreamedAnswer(context, caller, parts, EVENT_STREAM, {"X-Accel-Buffering": "no"})
        found = await telemetry.read(job, attempt, since)
        return JSONResponse(answer(job, attempt, found), headers={"Cache-Control": "no-store"})

    async def scrape(request: Request) -> Response:
        namespace = request.path_params.get("namespace", "")
        caller = await caller_of(request, context)
        require(caller, "list", "jobs", namespace)
        jobs = await _jobs(context, namespace, f"status.phase={JobPhase.RUNNING.value}")
        telemetry = _telemetry(context)
        latest = await asyncio.gather(*(_newest(telemetry, job) for job in jobs))
        return PlainTextResponse(prometheus(zip(map(_labels, jobs), latest, strict=True)), media_type=_PROMETHEUS)

    async def history(request: Request) -> Response:
        namespace = request.path_params.get("namespace", "")
        caller = await caller_of(request, context)
        require(caller, "list", "jobs", namespace)
        since = _moment(request.query_params.get("since", "0"))
        jobs = [job for job in await _jobs(context, namespace, "") if _touches(job, since)]
        if len(jobs) > MAX_JOBS:
            raise Invalid(f"{len(jobs)} jobs ran since then; ask for a shorter time with since=UNIXSECONDS")
        parts = _history(_telemetry(context), jobs, since)
        return StreamedAnswer(context, caller, parts, "text/plain", whole=True)

    return [
        *(run_route(kind, "metrics", metrics) for kind in kinds_with_runs()),
        *(Route(f"{base}/telemetry/prometheus", scrape, methods=["GET"]) for base in (BASE, EVERYWHERE)),
        *(Route(f"{base}/telemetry/influx", history, methods=["GET"]) for base in (BASE, EVERYWHERE)),
    ]


def answer(job: Job, attempt: int, found: Found) -> dict[str, Any]:
    """The document that a client reads."""
    return {
        "kind": "JobMetrics",
        "apiVersion": "isthmus.dev/v1",
        "metadata": {"name": job.name, "namespace": job.namespace},
        "attempt": attempt,
        "over": found.over,
        "cursor": found.cursor,
        "reset": found.reset,
        "series": [_series(name, points, found.estimated) for name, points in found.series.items()],
    }


def _series(name: str, points: list[tuple[float, float]], estimated: bool) -> dict[str, Any]:
    reported: dict[str, Any] = {"name": name, "unit": UNITS.get(name, ""), "points": points}
    return reported | {"source": "estimated" if estimated else "measured"} if name == POWER else reported


async def _events(
    telemetry: Telemetry, followers: JobFollowers, record: Record, attempt: int, since: str | None
) -> AsyncGenerator[bytes, None]:
    first, idle, job = True, 0.0, Job.model_validate(record.obj)
    async with followers.follow(record) as followed:
        while True:
            found = None
            try:
                job = await followed.now()
                over = followed.gone or is_over(job, attempt)
                found = await telemetry.read(job, attempt, since)
            except NotFound:
                over = True
            except IsthmusError as error:
                if not error.transient:
                    raise
                over = False
            if found is not None and (first or found.series):
                since, first, idle = found.cursor, False, 0.0
                yield event(answer(job, attempt, found), id_=found.cursor)
            if over:
                yield event({"phase": job.status.phase.value, "attempt": attempt}, "end")
                return
            idle += LOOK_SECONDS
            if idle >= KEEP_ALIVE_SECONDS:
                idle = 0.0
                yield KEEP_ALIVE
            if job.status.phase in (JobPhase.PENDING, JobPhase.PLACED, JobPhase.QUEUED):
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await followed.changed()
                except TimeoutError:
                    yield KEEP_ALIVE
            else:
                await asyncio.sleep(LOOK_SECONDS)


async def _history(telemetry: Telemetry, jobs: list[Job], since: float) -> AsyncGenerator[bytes, None]:
    for job in jobs:
        try:
            found = await telemetry.read(job, job.status.attempt)
        except (NotFound, Unavailable):
            continue  # its site has lost it, or does not answer: the others are worth having
        if text := influx(_labels(job), found.series, since):
            yield text.encode()


async def _newest(telemetry: Telemetry, job: Job) -> dict[str, tuple[float, float]]:
    try:
        return await read_safely(telemetry, job)
    except Unavailable:
        return {}


async def _jobs(context: Context, namespace: str, fields: str) -> list[Job]:
    wanted = parse_fields(fields, JOB.fields) if fields else EVERYTHING
    query = Query(JOB, namespace or None, fields=wanted)
    page = await context.store.list(query, limit=MAX_JOBS if fields else None)
    return [Job.model_validate(record.obj) for record in page.records]


def _labels(job: Job) -> Labelled:
    experiment = (job.metadata.labels or {}).get(EXPERIMENT_LABEL, "")
    return Labelled(job.namespace, job.name, job.status.site or "", experiment)


def _touches(job: Job, since: float) -> bool:
    """Whether any of the run lies after a time."""
    if job.status.started_at is None or job.spec.array is not None:
        return False
    end = job.status.finished_at
    return end is None or parse_timestamp(end).timestamp() >= since


def _telemetry(context: Context) -> Telemetry:
    if context.telemetry is None:
        raise Unavailable("this server keeps no series of jobs")
    return context.telemetry


def _follows(request: Request) -> bool:
    text = request.query_params.get("follow", "")
    if text not in ("", "true", "false", "1", "0"):
        raise Invalid(f"follow is {text[:40]!r}; write true or false")
    return text in ("true", "1") or (not text and EVENT_STREAM in request.headers.get("accept", ""))


def _attempt(request: Request, job: Job) -> int:
    text = request.query_params.get("attempt")
    if text is None:
        return job.status.attempt
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise Invalid(f"attempt is {text[:40]!r}; write a number, counted from 0")
    if int(text) > job.status.attempt:
        raise Invalid(f"job {job.name} has no attempt {text}; the latest is {job.status.attempt}")
    return int(text)


def _moment(text: str) -> float:
    try:
        moment = float(text)
    except ValueError:
        moment = math.nan
    if not math.isfinite(moment):
        raise Invalid(f"since is {text[:40]!r}; write seconds since 1970, such as 1763258400")
    return moment
