"""Submit: a form that shows the manifest it makes, and an editor for the manifest."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import JSONResponse, Response

from isthmus.api.documents import parse_yaml
from isthmus.console.calling import GROUP, in_tenant
from isthmus.console.manifests import at_fields, copied, from_form
from isthmus.console.rendering import HEADERS, as_yaml, render
from isthmus.console.visits import BASE, Visit, back_to
from isthmus.errors import Cause, Invalid, IsthmusError, Unauthenticated
from isthmus.resources.kinds import KINDS

EXAMPLE = {
    "spec.script": "#!/bin/sh\necho hello from $(hostname)\n",
    "spec.resources.cpus": "1",
}
EXPERIMENT = """\
apiVersion: isthmus.dev/v1
kind: Experiment
metadata:
  generateName: compare-
spec:
  template:
    script: |
      #!/usr/bin/env python3
      import json, os
      total = sum(n * n for n in range(int(os.environ["PARAM_size"])))
      print("isthmus:", json.dumps({"total": total}))
  matrix:
    devices: [cpu]
  parameters:
    - name: size
      values: [100000, 1000000]
  repetitions: 3
"""


async def form(visit: Visit) -> Response:
    """The empty form, or the manifest of a job to be changed and run again."""
    if source := visit.query.get("copy"):
        namespace, _, name = source.partition("/")
        job = await visit.asker.get(in_tenant(namespace, "jobs", name))
        return await _page(visit, {}, "manifest", as_yaml(copied(job)))
    if visit.query.get("kind") == "Experiment":
        return await _page(visit, {}, "manifest", EXPERIMENT)
    fields = {**EXAMPLE, **{key: value for key, value in visit.query.items() if key.startswith(("spec.", "metadata."))}}
    mode = "manifest" if visit.query.get("mode") == "manifest" else "form"
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
    """The manifest that the form makes, and what the API would say to it, without making anything."""
    fields = await visit.form()
    text, problems, rest = "", dict[str, str](), list[str]()
    try:
        made = from_form(fields)
        text = as_yaml(made)
        await _create(visit, made, fields.get("metadata.namespace", ""), dry=True)
    except Unauthenticated:
        raise
    except IsthmusError as error:
        problems, rest = at_fields(error.causes)
        rest = rest or ([] if problems else [error.message])
    return JSONResponse({"manifest": text, "problems": problems, "rest": rest}, 200, HEADERS)


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
    )


PAGES = (("GET", "/submit", form), ("POST", "/submit", submit), ("POST", "/submit/manifest", manifest))
