"""Submit: a form that shows the manifest it makes, and an editor for the manifest.

Both ask the API itself while somebody types (a dry run), so that what they say is what submitting would say.
"""

from __future__ import annotations

import asyncio
import re
from operator import itemgetter
from typing import Any

from starlette.responses import JSONResponse, Response

from isthmus.api.documents import parse_yaml
from isthmus.client.jobs import copied
from isthmus.console.calling import GROUP, in_tenant
from isthmus.console.index import RowQuery
from isthmus.console.manifests import at_fields, from_form, lines_of, to_form
from isthmus.console.rendering import HEADERS, as_yaml, render
from isthmus.console.visits import BASE, Visit, back_to
from isthmus.console.work import newest
from isthmus.errors import Cause, Invalid, IsthmusError, Unauthenticated
from isthmus.resources.experiments import Goal
from isthmus.resources.jobs import DependencyCondition, Streams
from isthmus.resources.kinds import KINDS

EXAMPLE = {
    "spec.script": "#!/bin/sh\necho hello from $(hostname)\n",
    "spec.resources.cpus": "1",
}
EXPERIMENT = {
    "kind": "Experiment",
    "spec.script": (
        "#!/usr/bin/env python3\nimport json, os\n"
        'total = sum(n * n for n in range(int(os.environ["PARAM_size"])))\n'
        'print("isthmus:", json.dumps({"total": total}))\n'
    ),
    "spec.resources.cpus": "1",
    "spec.matrix.devices": "cpu",
    "spec.parameters": "size=100000, 1000000",
    "spec.repetitions": "3",
}
_RECENT = 6
_LINE = re.compile(r"\bline (\d{1,6})\b")
_MOST_PROBLEMS = 20


async def form(visit: Visit) -> Response:
    """The empty form, or one filled with an object to be changed and submitted again."""
    experiment = visit.query.get("kind") == "Experiment"
    mode = "manifest" if visit.query.get("mode") == "manifest" else "form"
    if source := visit.query.get("copy"):
        namespace, _, name = source.partition("/")
        found = await visit.asker.get(in_tenant(namespace, "experiments" if experiment else "jobs", name))
        manifest = copied(found)
        fields = None if experiment or mode == "manifest" else to_form(manifest)
        return await _page(visit, fields or {}, "form" if fields else "manifest", as_yaml(manifest))
    given = {key: value for key, value in visit.query.items() if key.startswith(("spec.", "metadata."))}
    fields = {**(EXPERIMENT if experiment else EXAMPLE), **given}
    return await _page(visit, fields, mode, as_yaml(from_form(fields)))


async def submit(visit: Visit) -> Response:
    """Make the job; what is wrong is shown where it is."""
    fields = await visit.form()
    mode = "manifest" if fields.get("mode") == "manifest" else "form"
    text = fields.get("manifest", "").replace("\r\n", "\n")
    try:
        manifest = await _read(visit, text) if mode == "manifest" else from_form(fields)
        if mode == "form":
            text = as_yaml(manifest)
        made = await _create(visit, manifest, fields.get("metadata.namespace", ""))
    except Unauthenticated:
        raise
    except IsthmusError as error:
        return await _page(visit, fields, mode, text, error)
    kind = KINDS[made["kind"]]
    return back_to(f"{BASE}/{kind.plural}/{made['metadata']['namespace']}/{made['metadata']['name']}")


async def manifest(visit: Visit) -> Response:
    """The manifest of the form or the editor, and what the API would say to it, without creating anything."""
    fields = await visit.form()
    text = fields.get("manifest", "").replace("\r\n", "\n")
    written = fields.get("mode") == "manifest"
    problems, rest, found = dict[str, str](), list[str](), list[dict[str, Any]]()
    try:
        made = await _read(visit, text) if written else from_form(fields)
        text = text if written else as_yaml(made)
        await _create(visit, made, fields.get("metadata.namespace", ""), dry=True)
    except Unauthenticated:
        raise
    except IsthmusError as error:
        if written:
            found = await asyncio.to_thread(_at_lines, text, error)
        else:
            problems, rest = at_fields(error.causes)
            rest = rest or ([] if problems else [error.message])
    reported = {"manifest": text if not written else "", "problems": problems, "rest": rest, "lines": found}
    return JSONResponse(reported, 200, HEADERS)


def _at_lines(text: str, error: IsthmusError) -> list[dict[str, Any]]:
    """What is wrong with a manifest, and in which line."""
    causes = list(error.causes[:_MOST_PROBLEMS])
    if not causes:
        where = _LINE.search(error.message)
        return [{"line": int(where[1]) if where else 1, "field": "", "message": error.message}]
    lines = lines_of(text, [cause.field for cause in causes])
    found = [
        {"line": line, "field": cause.field, "message": cause.message}
        for line, cause in zip(lines, causes, strict=True)
    ]
    return sorted(found, key=itemgetter("line"))


async def _read(visit: Visit, text: str) -> dict[str, Any]:
    """The document in the editor, by the API's own reader."""
    from starlette.exceptions import HTTPException

    try:
        found = await asyncio.to_thread(parse_yaml, text.encode(), visit.parts.context.limits.nesting)
    except HTTPException as error:
        raise Invalid(error.detail.replace("the body", "the manifest")) from None
    if not isinstance(found, dict):
        raise Invalid("the manifest must be one object with apiVersion, kind, metadata and spec")
    return found


async def _create(visit: Visit, manifest: dict[str, Any], tenant: str, *, dry: bool = False) -> Any:
    kind = KINDS.get(str(manifest.get("kind")))
    if kind is None or kind.name not in ("Job", "Experiment"):
        raise Invalid("kind: write Job or Experiment", causes=(Cause("kind", "write Job or Experiment"),))
    metadata = manifest.get("metadata")
    named = metadata.get("namespace") if isinstance(metadata, dict) else None
    path = in_tenant(str(named or tenant or "default"), kind.plural)
    return await visit.asker.ask("POST", path, manifest, query="dryRun=All" if dry else "")


async def _page(
    visit: Visit, fields: dict[str, str], mode: str, text: str, error: IsthmusError | None = None
) -> Response:
    sites, devices, tenants = await asyncio.gather(
        visit.asker.get(f"{GROUP}/sites"),
        visit.asker.get(f"{GROUP}/deviceclasses"),
        visit.asker.get(f"{GROUP}/tenants"),
    )
    names = [item["metadata"]["name"] for item in tenants["items"]]
    await visit.parts.live.start()
    mine = None if visit.tenants is None else frozenset(visit.tenants)
    recent = await newest(visit.parts.live, RowQuery(mine), _RECENT)
    problems, rest = at_fields(error.causes) if error and mode == "form" else ({}, [])
    if error and not problems:
        rest = [error.message]
    return render(
        visit,
        "submit.html",
        422 if error else 200,
        fields=fields,
        mode=mode,
        manifest=text,
        problems=problems,
        rest=rest,
        sites=[item["metadata"]["name"] for item in sites["items"]],
        devices=[item["metadata"]["name"] for item in devices["items"]],
        tenants=[name for name in names if visit.may("create", "jobs", name)],
        recent=recent.rows,
        experiment=fields.get("kind") == "Experiment",
        conditions=list(DependencyCondition),
        streams=list(Streams),
        goals=list(Goal),
    )


PAGES = (("GET", "/submit", form), ("POST", "/submit", submit), ("POST", "/submit/manifest", manifest))
