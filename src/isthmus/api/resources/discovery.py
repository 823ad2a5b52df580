"""Discovery: which groups, versions and resources there are, in the form kubectl and client libraries read."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from isthmus.api.context import Context
from isthmus.api.requests import caller_of
from isthmus.api.responses import json_response
from isthmus.resources.frame.meta import GROUP, VERSION
from isthmus.resources.kinds import Kind

from .targets import all_views

_ALL = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_READ = ["get", "list", "watch"]
_REVIEWS = {
    "authorization.k8s.io": {
        "SelfSubjectAccessReview": "selfsubjectaccessreviews",
        "SelfSubjectRulesReview": "selfsubjectrulesreviews",
    },
    "authentication.k8s.io": {"SelfSubjectReview": "selfsubjectreviews"},
}


def routes(context: Context) -> list[BaseRoute]:
    """Every discovery document. They never change while the server runs."""
    groups = [_group(GROUP, VERSION), *(_group(name, "v1") for name in _REVIEWS)]
    documents: dict[str, dict[str, Any]] = {
        "/api": {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        },
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    for group in groups:
        documents[f"/apis/{group['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    for (name, version), views in all_views().items():
        resources = [entry for view in views.values() for entry in _entries(view.kind, read_only=view.read_only)]
        path = f"/apis/{name}/{version}" if name else f"/api/{version}"
        documents[path] = _resources(f"{name}/{version}" if name else version, resources)
    for name, kinds in _REVIEWS.items():
        reviews = [_review(kind, plural) for kind, plural in kinds.items()]
        documents[f"/apis/{name}/v1"] = _resources(f"{name}/v1", reviews)
    # The Python client asks with a slash at the end, kubectl without.
    return [
        Route(path + end, _serve(context, document), methods=["GET"])
        for path, document in documents.items()
        for end in ("", "/")
    ]


def _serve(context: Context, document: dict[str, Any]) -> Any:
    async def serve(request: Request) -> Response:
        await caller_of(request, context)
        return json_response(document)

    return serve


def _group(name: str, version: str) -> dict[str, Any]:
    only = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [only], "preferredVersion": only}


def _resources(group_version: str, resources: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _entries(kind: Kind, *, read_only: bool) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": _READ if read_only else _ALL,
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if not kind.has_status:
        return [entry]
    status = {
        "name": f"{kind.plural}/status",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": ["get"] if read_only else ["get", "patch", "update"],
    }
    return [entry, status]


def _review(kind: str, plural: str) -> dict[str, Any]:
    return {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
