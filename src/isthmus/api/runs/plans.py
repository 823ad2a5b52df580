"""What if: where a job would go, when it would end and what it would cost. Nothing is stored, nothing changes.

The question names a job that there is (`spec.job`) or holds the spec of one that is not (`spec.template`); a deadline
and its weight in the question take the place of the job's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field
from starlette.responses import Response
from starlette.routing import Route

from isthmus.api.documents import read_document
from isthmus.api.requests import caller_of, read_body, require
from isthmus.api.resources.admission import prepare_new
from isthmus.api.responses import json_response
from isthmus.errors import Cause, Invalid, Unavailable
from isthmus.resources.frame.meta import Model, Name, Time
from isthmus.resources.frame.validation import parse
from isthmus.resources.jobs import Job
from isthmus.resources.kinds import JOB
from isthmus.store.base import Key

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from isthmus.api.context import Context

BASE = "/apis/isthmus.dev/v1/namespaces/{namespace}/plans"
_HYPOTHETICAL = "what-if"
_SMALL = 64 * 2**10


class PlanQuestion(Model):
    """What is asked."""

    job: Name | None = Field(default=None, description="a job that there is")
    template: dict[str, Any] | None = Field(default=None, description="the spec of one that is not there yet")
    deadline: Time | None = None
    late_cost_per_hour: float | None = Field(default=None, ge=0, le=1_000_000)


def routes(context: Context) -> list[BaseRoute]:
    """Where the question is asked."""

    async def ask(request: Request) -> Response:
        caller = await caller_of(request, context)
        namespace = request.path_params["namespace"]
        require(caller, "get", "jobs", namespace, subresource="plan")
        body = await read_body(request, context.limits.body_bytes)
        sent = await read_document(body, request.headers.get("content-type", ""), context.limits.nesting)
        spec = sent.get("spec", {})
        if not isinstance(spec, dict):
            raise Invalid("Plan: spec must be an object", causes=(Cause("spec", "must be an object"),))
        question = parse(PlanQuestion, spec, "Plan")
        if context.plans is None:
            raise Unavailable("this server does not plan; ask another replica")
        asking = caller.token or caller.user
        job = await _job(context, namespace, question, asking, len(body))
        async with context.work.turn(asking):
            status = (await context.work.in_thread(await context.plans.prepare(job))).to_json()
        head = {"apiVersion": "isthmus.dev/v1", "kind": "Plan", "metadata": {"namespace": namespace}}
        return json_response({**head, "spec": question.to_json(), "status": status}, 201)

    return [Route(BASE, ask, methods=["POST"])]


async def _job(context: Context, namespace: str, question: PlanQuestion, caller: str, size: int) -> Job:
    changes = {"deadline": question.deadline, "lateCostPerHour": question.late_cost_per_hour}
    said = {name: value for name, value in changes.items() if value is not None}
    if (question.job is None) == (question.template is None):
        message = "say exactly one of job (the name of one that there is) and template (the spec of a new one)"
        raise Invalid(f"spec: {message}", causes=(Cause("spec", message, "FieldValueRequired"),))
    if question.job is not None:
        record = await context.store.get(Key(JOB.name, namespace, question.job))
        return parse(Job, {**record.obj, "spec": {**record.obj["spec"], **said}}, "Job")
    spec = {**(question.template or {}), **said}
    return await context.work.run(caller, _made, spec, namespace) if size > _SMALL else _made(spec, namespace)


def _made(spec: dict[str, Any], namespace: str) -> Job:
    made = prepare_new(JOB, {"metadata": {"name": _HYPOTHETICAL}, "spec": spec}, namespace)
    made["metadata"]["uid"] = _HYPOTHETICAL
    return parse(Job, made, "Job")
