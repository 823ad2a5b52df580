"""Every body that can be sent is found: those of the API by its description, those of the console by its source.

A field of a body that no schema bounds, and that is not in `ELSEWHERE` with the bound that it has all the same, fails
here, and so does an operation or a form that answers with a fault of the server. The fields of the kinds themselves are
in `test_table.py`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

import isthmus
from isthmus.api.app import create_app
from isthmus.api.openapi.whole import document
from isthmus.console import Console
from isthmus.console.sessions import new_key
from isthmus.resources.kinds import KINDS
from isthmus.testing.apis import TENANT_NAME, RunningApi, running_api

from .conftest import code_in
from .places import HOSTILE, TEXTS, filled, leaves, pages, with_

pytestmark = pytest.mark.anyio

BODY = "3 MiB, 64 deep, 200,000 parts, as the whole body"
NOT_READ = "not read"
ELSEWHERE = {
    "DeleteOptions apiVersion": NOT_READ,
    "DeleteOptions kind": NOT_READ,
    "DeleteOptions gracePeriodSeconds": NOT_READ,
    "DeleteOptions preconditions.uid": "compared, and nothing else",
    "JsonPatch ": "10,000 operations",
    "JsonPatch [].path": "64 names",
    "JsonPatch [].from": "64 names",
    "JsonPatch [].value": BODY,
    "merge-patch+json ": "the object that it makes has the bounds of its kind",
    "apply-patch+yaml ": "the object that it makes has the bounds of its kind",
    "PlanQuestion apiVersion": NOT_READ,
    "PlanQuestion kind": NOT_READ,
    "PlanQuestion metadata": NOT_READ,
    "PlanQuestion spec.template": "as the spec of a job",
    "PlanQuestion spec.deadline": "a time: 64 characters",
    "Review apiVersion": NOT_READ,
    "Review kind": NOT_READ,
    "Review metadata": NOT_READ,
    "Review spec": BODY,
    "Tree files[].path": "4,096 characters, 128 folders",
    "octet-stream ": "64 GiB, read in pieces",
    "x-tar ": "64 GiB, read in pieces; names of digests only",
}
"""Fields whose bound no schema says, and the bound."""
FORMS: tuple[dict[str, str], ...] = (
    {},
    {"mode": "manifest"},
    {"kind": "Experiment"},
    {"what": "command", "metadata.namespace": TENANT_NAME},
)
ODD: tuple[Any, ...] = (
    None,
    [],
    {},
    "text",
    1.5,
    {"spec": None},
    {"spec": []},
    {"digests": {}},
    {"paths": 1, "ignore": 2},
)
HEADERS = {"origin": ("http://[", "null", "x" * 3000), "cookie": ('a="\\777', ";;=" * 500), "accept": (",;q=²",)}


def bodies() -> Iterator[tuple[str, str, str, str, Mapping[str, Any]]]:
    """Method, path, media type, a name and the schema of every body; jobs stand for all kinds."""
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            if operation.get("tags", ["Job"])[0] in KINDS.keys() - {"Job"}:
                continue
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                schema = content["schema"]
                name = schema["$ref"].rpartition("/")[2] if "$ref" in schema else media.rpartition("/")[2]
                yield method.upper(), path, media, name, schema


def test_every_field_of_a_body_has_a_bound() -> None:
    schemas = document()["components"]["schemas"]
    named = {name: schema for *_, name, schema in bodies() if name not in KINDS}
    assert {"DigestsAsked", "PlanQuestion", "Enrolment", "Review", "Tree", "JsonPatch"} <= named.keys()
    unbounded = {
        f"{name} {leaf.path}" for name, schema in named.items() for leaf in leaves(schema, schemas) if not leaf.bounded
    }
    assert sorted(unbounded - ELSEWHERE.keys()) == [], "give it a bound, or say in ELSEWHERE which it has"
    assert sorted(ELSEWHERE.keys() - unbounded) == [], "there is no such field any more, or its schema has a bound"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        await api.create_job("there", {"command": ["true"], "intent": "Hold"})
        yield api


async def test_every_route_that_takes_a_body_is_described(api: RunningApi) -> None:
    """What the table goes by is everything that there is."""
    served = {
        (method, re.sub(r":\w+}", "}", route.path))
        for route in create_app(api.context).routes
        if isinstance(route, Route)
        for method in (route.methods or set()) & {"POST", "PUT", "PATCH"}
    }
    assert served
    assert sorted(served - {(method, path) for method, path, *_ in bodies()}) == []


async def test_every_body_takes_whatever_is_sent(api: RunningApi) -> None:
    schemas = document()["components"]["schemas"]
    broken = []
    async with api.client() as client:
        for method, path, media, name, schema in bodies():
            if name == "Job":
                continue  # the fields of kinds are in the other table
            values = [(leaf.path, value) for leaf in leaves(schema, schemas) for value in HOSTILE[leaf.type]]
            sent: list[tuple[str, Any]] = [(place, with_(place, value) if place else value) for place, value in values]
            for place, value in (*sent, *(("", odd) for odd in ODD)):
                query = "" if method == "POST" else "?dryRun=All"
                content = value.encode() if isinstance(value, str) else json.dumps(value).encode()
                answer = await client.request(
                    method, filled(path) + query, content=content, headers={"Content-Type": media}
                )
                if answer.status_code >= 500 or len(answer.content) > max(16_384, len(content) + 4096):
                    broken.append(f"{method} {path} {place}={str(value)[:40]}: {answer.status_code}")
    assert broken == []


# Forms of the console


def names_in_forms() -> set[str]:
    """What the console reads from forms: constants that name a field, by its source."""
    found = set()
    for path in (Path(isthmus.__file__).parent / "console").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name("fields" | "given"), attr="get"), args=[first, *_]):
                    names = [first]
                case ast.Subscript(value=ast.Name("fields" | "given"), slice=first):
                    names = [first]
                case ast.Tuple(elts=several):
                    names = [one for one in several if _is_path(one)]
                case _:
                    continue
            found |= {one.value for one in names if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return found


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).startswith(("spec.", "metadata."))


async def test_every_form_takes_whatever_is_sent(api: RunningApi) -> None:
    names = sorted(names_in_forms())
    assert {"job", "back", "next", "token", "ticket", "manifest", "spec.script", "spec.array.indices"} <= set(names)
    console = Console(api.context, create_app(api.context), new_key())
    broken = []
    transport = httpx.ASGITransport(console, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", follow_redirects=False) as client:
        signing_in = {"csrf": code_in((await client.get("/console/sign-in")).text), "token": api.tokens["member"]}
        assert (await client.post("/console/sign-in", data=signing_in)).status_code == 303
        code = code_in((await client.get("/console/")).text)
        stranger = code_in((await client.get("/console/sign-in")).text)
        posts = [
            (method, route.path)
            for route in pages(console.router)
            for method in (route.methods or set()) & {"POST", "PUT"}
            if "sign-out" not in route.path
        ]
        posts.sort(key=lambda post: post[1].endswith("/sign-in"))  # whoever signs in again has another code
        assert len(posts) > 15
        for method, path in posts:
            signs_in = path.endswith(("/sign-in", "/enter"))
            csrf = stranger if signs_in else code
            for fields in (
                {**dict.fromkeys(names, text), **more}
                for text in TEXTS
                for more in FORMS
                if "submit" in path or not more
            ):
                named = {"token": api.tokens["member"]} if signs_in else {"job": f"jobs/{TENANT_NAME}/none"}
                answer = await client.request(
                    method, filled(path), data={**fields, **named, "csrf": csrf}, headers={"X-CSRF": csrf}
                )
                if answer.status_code >= 500 or (answer.status_code == 403 and "made by this console" in answer.text):
                    broken.append(f"{path} {fields['back'][:20]!r}: {answer.status_code}")
            for odd in ODD:
                answer = await client.request(method, filled(path), json=odd, headers={"X-CSRF": csrf})
                if answer.status_code >= 500:
                    broken.append(f"{path} {odd!r}: {answer.status_code}")
        for name, value in ((name, value) for name, values in HEADERS.items() for value in values):
            for asked in (("GET", "/console/jobs"), ("POST", "/console/submit"), ("POST", "/console/sign-in")):
                answer = await client.request(*asked, headers={name: value.encode()})
                if answer.status_code >= 500:
                    broken.append(f"{asked} {name}: {value[:20]}: {answer.status_code}")
    await console.close()
    assert broken == []
