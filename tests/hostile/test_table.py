"""Nothing that a tenant can send is forgotten: fields, parameters, pages and files of runs are found by looking.

A field of a model that has no bound, and is not in `ELSEWHERE` with the bound that it has all the same, fails here; so
does a parameter or a page that answers with a fault of the server when it is sent something odd. What is in the table
and no longer in the product fails too.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import isthmus
from isthmus.api.app import create_app
from isthmus.api.openapi.whole import document
from isthmus.console import Console
from isthmus.console.sessions import new_key
from isthmus.engines.local.layout import RunFolder
from isthmus.errors import Invalid
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EXPERIMENT, JOB, Kind
from isthmus.testing.apis import TENANT_NAME, RunningApi, running_api
from isthmus.testing.servers import GROUP

from .conftest import code_in
from .places import HOSTILE, TEXTS, filled, finite, merged, of_members, pages, places, with_

pytestmark = pytest.mark.anyio

OBJECT = "1.5 MiB, as the whole object"
ELSEWHERE = {
    "spec.command[]": "131,072 characters each, 2 MiB together",
    "spec.args[]": "131,072 characters each, 2 MiB together",
    "spec.restartable.keep[]": "a pattern: 4,096 characters, 128 folders",
    "spec.template.command[]": "as of a job",
    "spec.template.args[]": "as of a job",
    "spec.template.restartable.keep[]": "as of a job",
    "spec.description": OBJECT,
    "spec.quota.devices": OBJECT,
    "spec.sites": OBJECT,
    "spec.devices": OBJECT,
    "spec.deadline": "a time: 64 characters",
    "spec.template.deadline": "a time: 64 characters",
    "spec.expiresAt": "a time: 64 characters",
    "metadata.creationTimestamp": "given by the server",
    "metadata.deletionTimestamp": "given by the server",
    "metadata.namespace": "the namespace of the request, or refused",
    "metadata.uid": "given by the server",
    "metadata.resourceVersion": "18 digits",
    "metadata.labels": "1,000",
    "metadata.annotations": "256 KiB together, 1,000 of them",
    "metadata.annotations{}": "256 KiB together",
    "metadata.finalizers": "32",
    "metadata.finalizers[]": "those the platform knows",
    "metadata.ownerReferences": "32",
    "metadata.ownerReferences[].apiVersion": "an object that there is",
    "metadata.ownerReferences[].kind": "an object that there is",
    "metadata.ownerReferences[].name": "an object that there is",
    "metadata.ownerReferences[].uid": "an object that there is",
}
"""Fields whose bound no schema says, and the bound."""
FILES_OF_RUNS = {
    "spec": "16 MiB, of which nothing is believed that is not of its type",
    "started": "16 MiB, strict",
    "ended": "16 MiB, strict",
    "cancel": "looked for, never read",
    "work": "collected up to 50 GiB and the quota, 200,000 files, 100 folders deep",
    "tmp": "measured, never read",
    "launch": "removed, never read",
    "samples": "read in pieces, as lines of bounded length",
    "disk": "18 digits",
    "sampling_log": "read in pieces, as text",
}
"""Every file of a run that its job may have been able to write, and how much of it is read."""


def test_every_field_has_a_bound() -> None:
    unbounded = {leaf.path for kind in of_members() for leaf in places(kind).values() if not leaf.bounded}
    assert sorted(unbounded - ELSEWHERE.keys()) == [], "give it a bound, or say in ELSEWHERE which it has"
    assert sorted(ELSEWHERE.keys() - unbounded) == [], "there is no such field any more, or its schema has a bound"


def test_patterns_without_end_are_seen() -> None:
    assert finite(r"^[A-Za-z0-9_.+@:*&|,()\[\]-]{1,512}$")
    assert not finite("^a+$")
    assert not finite("[a-z]{3}")


@pytest.mark.parametrize("kind", of_members(), ids=lambda kind: kind.name)
def test_every_field_takes_whatever_is_sent(kind: Kind) -> None:
    """A value comes out, or Invalid: nothing else."""
    work: dict[str, Any] = {"spec": {"command": ["true"], "template": {"command": ["true"]}}}
    known = places(kind)
    base = {
        "metadata": {"name": "a"},
        "spec": {k: v for k, v in work["spec"].items() if f"spec.{k}[]" in known or f"spec.{k}.command[]" in known},
    }
    for leaf in known.values():
        for value in HOSTILE[leaf.type]:
            with contextlib.suppress(Invalid):
                validate(kind, merged(base, with_(leaf.path, value)))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        await api.create_job("there", {"command": ["true"]})
        yield api


async def test_what_no_schema_bounds_is_refused_or_not_kept(api: RunningApi) -> None:
    huge = {"string": "x" * 400_000, "array": ["x"] * 60_000, "map": {f"k{n}": "x" * 300 for n in range(1100)}}
    spec = {JOB: {"command": ["true"]}, EXPERIMENT: {"template": {"command": ["true"]}}}
    async with api.client() as client:
        for kind, path in ((kind, path) for kind in spec for path in ELSEWHERE if ELSEWHERE[path] != OBJECT):
            if path not in (known := places(kind)):
                continue
            obj = merged({"metadata": {"name": "huge"}, "spec": spec[kind]}, with_(path, huge[known[path].type]))
            answer = await client.post(f"{GROUP}/namespaces/{TENANT_NAME}/{kind.plural}", json=obj)
            assert answer.status_code < 500, (path, answer.text[:300])
            assert len(answer.content) < 16_384, path
            if answer.status_code == 201:
                await client.delete(f"{GROUP}/namespaces/{TENANT_NAME}/{kind.plural}/huge")


# Parameters of the API


def operations() -> Iterator[tuple[str, str, str]]:
    """Method, path and one parameter of the query, for each that the API describes; jobs stand for all kinds."""
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            if operation.get("tags", [""])[0] in (
                "Experiment",
                "Site",
                "DeviceClass",
                "Tenant",
                "Token",
                "Event",
                "Profile",
            ):
                continue
            for parameter in operation.get("parameters", ()):
                if parameter.get("in") == "query":
                    yield method.upper(), path, parameter["name"]


async def test_every_parameter_takes_whatever_is_sent(api: RunningApi) -> None:
    asked = sorted(set(operations()))
    assert len(asked) > 40
    broken = []
    async with api.client() as client:
        for method, path, name in asked:
            if method not in ("GET", "DELETE"):
                continue
            place = filled(path)
            for text in TEXTS:
                ends = "&timeoutSeconds=1" if name != "timeoutSeconds" and name != "follow" else ""
                query = f"{name}={quote(text)}{ends}"
                if method == "DELETE":
                    query += "&dryRun=All"
                async with client.stream(method, f"{place}?{query}") as answer:
                    if answer.status_code >= 500:
                        broken.append(f"{method} {path} {name}={text[:20]!r}: {answer.status_code}")
    assert broken == []


# Pages of the console


def names_in_queries() -> set[str]:
    """What pages read from their address, by their source."""
    found = set()
    for path in (Path(isthmus.__file__).parent / "console").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("get", "getlist")
            ):
                of = ast.unparse(node.func.value)
                if of.endswith(("query", "query_params")) and node.args and isinstance(node.args[0], ast.Constant):
                    found.add(str(node.args[0].value))
    return found


async def test_every_page_takes_whatever_is_sent(api: RunningApi) -> None:
    console = Console(api.context, create_app(api.context), new_key())
    names = names_in_queries()
    assert {"next", "mark", "before", "q"} <= names
    broken = []
    transport = httpx.ASGITransport(console)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", follow_redirects=False) as client:
        signing_in = {"csrf": code_in((await client.get("/console/sign-in")).text), "token": api.tokens["member"]}
        assert (await client.post("/console/sign-in", data=signing_in)).status_code == 303
        for route in pages(console.router):
            if "GET" not in (route.methods or ()) or "/live" in route.path or "follow" in route.path:
                continue  # what never ends is asked in the table of inputs
            for text in TEXTS:
                place = filled(route.path)
                query = "&".join(f"{name}={quote(text)}" for name in sorted(names))
                answer = await client.get(f"{place}?{query}")
                if answer.status_code >= 500:
                    broken.append(f"{route.path} {text[:20]!r}: {answer.status_code}")
    await console.close()
    assert broken == []


def test_every_file_of_a_run_has_a_bound() -> None:
    named = {name for name, value in vars(RunFolder).items() if isinstance(value, property)} - {"run_id"}
    assert named == FILES_OF_RUNS.keys()
    assert [field.name for field in fields(RunFolder)] == ["path"]
