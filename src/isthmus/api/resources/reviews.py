"""Reviews: a caller asks who it is and what it may do (`kubectl auth whoami`, `kubectl auth can-i`).

Nothing is stored, and everybody may ask, about themselves only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from isthmus.api.context import Context
from isthmus.api.documents import read_document
from isthmus.api.requests import caller_of, read_body
from isthmus.api.responses import json_response
from isthmus.errors import Cause, Invalid
from isthmus.identity.authorizing import EVERY_VERB, allowed, rules_in
from isthmus.identity.callers import Caller
from isthmus.resources.kinds import derived

from .targets import all_views

Review = Callable[[Caller, dict[str, Any]], dict[str, Any]]

_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version", "/api", "/apis", "/openapi")


@derived
def _groups() -> dict[str, str]:
    return {plural: group for (group, _), views in all_views().items() for plural in views}


def routes(context: Context) -> list[BaseRoute]:
    """The three reviews."""
    authorization, authentication = "authorization.k8s.io/v1", "authentication.k8s.io/v1"
    found: tuple[tuple[str, str, str, Review], ...] = (
        (authorization, "selfsubjectaccessreviews", "SelfSubjectAccessReview", access_review),
        (authorization, "selfsubjectrulesreviews", "SelfSubjectRulesReview", rules_review),
        (authentication, "selfsubjectreviews", "SelfSubjectReview", self_review),
    )
    return [
        Route(f"/apis/{group}/{plural}", _serve(context, group, kind, review), methods=["POST"])
        for group, plural, kind, review in found
    ]


def _serve(context: Context, api_version: str, kind: str, review: Review) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        caller = await caller_of(request, context)
        body = await read_body(request, context.limits.body_bytes)
        sent = await read_document(body, request.headers.get("content-type", ""), context.limits.nesting)
        spec = sent.get("spec", {})
        if not isinstance(spec, dict):
            raise Invalid(f"{kind}: spec must be an object", causes=(Cause("spec", "must be an object"),))
        answer = {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": spec}
        return json_response({**answer, "status": review(caller, spec)}, 201)

    return serve


def access_review(caller: Caller, spec: dict[str, Any]) -> dict[str, Any]:
    """Whether the caller may do one thing."""
    given = [field for field in ("resourceAttributes", "nonResourceAttributes") if spec.get(field) is not None]
    if len(given) != 1:
        message = "exactly one of resourceAttributes and nonResourceAttributes must say what is asked"
        raise Invalid(f"spec: {message}", causes=(Cause("spec", message, "FieldValueRequired"),))
    attributes = spec[given[0]]
    texts = isinstance(attributes, dict) and all(
        isinstance(value, str | None) for key, value in attributes.items() if not key.endswith("Selector")
    )
    if not texts:
        message = "must be an object whose fields are texts"
        raise Invalid(f"spec.{given[0]}: {message}", causes=(Cause(f"spec.{given[0]}", message),))
    if given[0] == "resourceAttributes":
        return {"allowed": _may(caller, attributes)}
    asked = str(attributes.get("path") or "")
    opened = any(asked == path or asked.startswith(f"{path}/") for path in _OPEN_PATHS)
    return {"allowed": caller.is_platform_admin or opened}


def _may(caller: Caller, attributes: dict[str, Any]) -> bool:
    verb, group, resource, namespace, name, subresource = (
        str(attributes.get(field) or "") for field in ("verb", "group", "resource", "namespace", "name", "subresource")
    )
    if "*" in (verb, group, resource) or caller.is_platform_admin:
        return caller.is_platform_admin
    if group != _groups().get(resource, "isthmus.dev") or verb not in EVERY_VERB:
        return False
    return allowed(caller, verb, resource, namespace, name, subresource)


def rules_review(caller: Caller, spec: dict[str, Any]) -> dict[str, Any]:
    """Everything the caller may do in one namespace."""
    namespace = spec.get("namespace") or ""
    if not isinstance(namespace, str):
        raise Invalid("spec.namespace must be a text", causes=(Cause("spec.namespace", "must be a text"),))
    rules = [
        {"apiGroups": ["*" if what == "*" else _group_of(what)], "resources": [what], "verbs": sorted(verbs)}
        for what, verbs in sorted(rules_in(caller, namespace).items())
    ]
    open_paths = [path for open_ in _OPEN_PATHS for path in (open_, f"{open_}/*")]
    return {
        "resourceRules": rules,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": open_paths}],
        "incomplete": False,
    }


def self_review(caller: Caller, _: dict[str, Any]) -> dict[str, Any]:
    """Who the caller is."""
    extra = {"isthmus.dev/token": [caller.token]} if caller.token else {}
    return {"userInfo": {"username": caller.user, "groups": caller.groups, "extra": extra}}


def _group_of(what: str) -> str:
    resource = what.partition("/")[0]
    if resource == "selfsubjectreviews":
        return "authentication.k8s.io"
    if resource.startswith("selfsubject"):
        return "authorization.k8s.io"
    return _groups().get(resource, "isthmus.dev")
