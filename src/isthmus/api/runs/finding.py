"""Which run a request means: a job's own, or one of the jobs that another object is made of.

Log, metrics and outputs are served for every kind that has runs. Only jobs run; whatever else is made of jobs names one
of them with `run`, and need not if it has but one. Whose runs may be read is decided for the job, as everywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isthmus.api.requests import caller_of, require
from isthmus.errors import Cause, Invalid, NotFound
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import JOB, KINDS, Kind
from isthmus.store.base import Key, Query, Record

if TYPE_CHECKING:
    from isthmus.api.context import Context
    from isthmus.identity.callers import Caller

BASE = "/apis/isthmus.dev/v1/namespaces/{namespace}"
Serve = Callable[[Request, Kind], Awaitable[Response]]
RUN = "run"
"""The parameter that names one of the jobs that an object is made of."""
PAGE, MOST_PAGES = 500, 20


@dataclass(frozen=True, slots=True)
class FoundRun:
    """The job whose run is meant, and who asks."""

    caller: Caller
    record: Record
    job: Job


def kinds_with_runs() -> list[Kind]:
    """Jobs, and every kind that is made of jobs."""
    return [JOB, *(kind for kind in KINDS.values() if kind is not JOB and JOB.name in kind.owns)]


def run_route(kind: Kind, part: str, serve: Serve, methods: Sequence[str] = ("GET",)) -> Route:
    """The route of a part of the runs of a kind."""

    async def endpoint(request: Request) -> Response:
        return await serve(request, kind)

    return Route(path_of(kind, part), endpoint, methods=list(methods))


def path_of(kind: Kind, part: str) -> str:
    """Where a part of the runs of a kind is served."""
    return f"{BASE}/{kind.plural}/{{name}}/{part}"


async def find_run(context: Context, request: Request, kind: Kind, part: str) -> FoundRun:
    """The job that is meant; raises Forbidden before anything is looked up, NotFound, Invalid."""
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    caller = await caller_of(request, context)
    if kind is JOB:
        require(caller, "get", JOB.plural, namespace, name, part)
        return _found(caller, await context.store.get(Key(JOB.name, namespace, name)))
    require(caller, "get", kind.plural, namespace, name)
    wanted = request.query_params.get(RUN, "")
    require(caller, "get" if wanted else "list", JOB.plural, namespace, wanted)
    owner = await context.store.get(Key(kind.name, namespace, name))
    if wanted:
        record = await context.store.get(Key(JOB.name, namespace, wanted))
        if not _belongs(record, owner):
            raise NotFound(f"{kind.singular} {name} has no run {wanted[:100]!r}")
    else:
        record = await _only_run(context, kind, owner)
    require(caller, "get", JOB.plural, namespace, record.key.name, part)
    return _found(caller, record)


async def _only_run(context: Context, kind: Kind, owner: Record) -> Record:
    found: list[Record] = []
    position: str | None = None
    for _ in range(MOST_PAGES):
        page = await context.store.list(Query(JOB, owner.key.namespace), limit=PAGE, continue_=position)
        found += [record for record in page.records if _belongs(record, owner)]
        position = page.continue_
        if len(found) > 1 or not position:
            break
    if not found and not position:
        raise NotFound(f"{kind.singular} {owner.key.name} has no run yet")
    if len(found) != 1 or position:
        message = f"{kind.singular} {owner.key.name} has several runs; name one of its jobs"
        raise Invalid(f"{RUN}: {message}", causes=(Cause(RUN, message),))
    return found[0]


def _belongs(record: Record, owner: Record) -> bool:
    owners = record.obj["metadata"].get("ownerReferences") or ()
    return any(reference.get("uid") == owner.uid for reference in owners)


def _found(caller: Caller, record: Record) -> FoundRun:
    return FoundRun(caller, record, Job.model_validate(record.obj))
