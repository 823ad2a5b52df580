"""Every input that a tenant controls and the control plane reads, with its bound, and one that goes far beyond it.

`test_latency.py` sends each to a real server and watches that others are answered meanwhile. Whoever adds an input to
the product adds a line here; what is not in this table has no bound that anybody has looked at. What jobs write at
sites is in the tests of the engines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

GROUP = "/apis/isthmus.dev/v1"
HERE = f"{GROUP}/namespaces/default"
JOBS = f"{HERE}/jobs"
JSON, YAML = "application/json", "application/yaml"
MERGE, PATCH = "application/merge-patch+json", "application/json-patch+json"
EXPERIMENTS = f"{HERE}/experiments"
FORM = frozenset({200, 400, 413, 422})
"""A form is shown again, with what is wrong with it."""
REFUSED = frozenset({400, 404, 413, 422, 431})
"""What a refusal looks like: nothing of 500 and above."""


@dataclass(frozen=True)
class Request:
    """One request."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Input:
    """One input, its bound in words, and a request that goes beyond it."""

    name: str
    bound: str
    request: Callable[[], Request]
    codes: frozenset[int] = REFUSED


def posted(body: Any, path: str = JOBS) -> Request:
    return Request("POST", path, json.dumps(body).encode())


def job(name: str = "hostile", metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Job",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"command": ["true"], **spec},
    }


def plan(**template: Any) -> Request:
    return posted({"spec": {"template": {"command": ["true"], **template}}}, f"{HERE}/plans")


def patched(operations: list[Any]) -> Request:
    return Request("PATCH", f"{JOBS}/patched", json.dumps(operations).encode(), PATCH)


def _moves() -> list[Any]:
    big = {f"key-{number}": "x" for number in range(40_000)}
    first = {"op": "add", "path": "/spec/there", "value": big}
    back = ("/spec/there", "/spec/back")
    return [first, *({"op": "move", "from": back[n % 2], "path": back[1 - n % 2]} for n in range(2000))]


def _nest() -> list[Any]:
    return [{"op": "add", "path": "/spec" + "/a" * depth, "value": {}} for depth in range(1, 3000)]


def _shifts() -> list[Any]:
    first = {"op": "add", "path": "/spec/list", "value": [0] * 190_000}
    return [first, *({"op": "add", "path": "/spec/list/0", "value": 1} for _ in range(9_000))]


def _copies() -> list[Any]:
    first = {"op": "add", "path": "/spec/there", "value": ["x" * 100] * 1000}
    return [first, *({"op": "copy", "from": "/spec/there", "path": f"/spec/copy-{n}"} for n in range(5000))]


def upload(paths: list[str], rules: str) -> Request:
    body = json.dumps({"paths": paths, "ignore": {".gitignore": rules}}).encode()
    return Request("POST", "/console/submit/files/default/choose", body)


_DEEP = "/".join(["a"] * 60)

INPUTS: tuple[Input, ...] = (
    Input("a duration", "64 characters", lambda: plan(resources={"timeLimit": "1" * 40_000})),
    Input("a duration of many parts", "64 characters", lambda: plan(resources={"timeLimit": "1s" * 1_000_000})),
    Input("cpus", "32 characters", lambda: plan(resources={"cpus": "1" * 2_000_000})),
    Input("memory", "32 characters", lambda: plan(resources={"memory": "9" * 2_000_000 + "Gi"})),
    Input("a time", "64 characters", lambda: plan(deadline="2026-01-31T18:00:00." + "1" * 1_000_000 + "Z")),
    Input("the earliest time", "years 1970 to 8999", lambda: plan(deadline="0001-01-01T00:00:00+23:59")),
    Input("the latest time", "years 1970 to 8999", lambda: plan(deadline="9999-12-31T23:59:59-23:59")),
    Input("an array", "100,000 indices, named once", lambda: plan(array={"indices": ",".join(["0-49999"] * 500)})),
    Input("an expression", "4,096 characters", lambda: plan(placement={"expression": "a and " * 400_000 + "a"})),
    Input(
        "brackets in an expression", "64 deep", lambda: plan(placement={"expression": "(" * 2000 + "a" + ")" * 2000})
    ),
    Input(
        "a plan",
        "20 s, two at a time for each caller",
        lambda: plan(
            array={"indices": "0-99999"},
            deadline="2100-01-01T00:00:00Z",
            resources={"anyOf": [{"class": f"c{n}", "counts": list(range(1, 17))} for n in range(16)]},
            profile=[{"class": f"c{n % 16}", "count": 1 + n // 16, "duration": "1h"} for n in range(256)],
            placement={"expression": "(" * 60 + "a == b" + ")" * 60 + " or a < 1" * 400},
        ),
        frozenset({201}),
    ),
    Input("a command", "10,000 words", lambda: plan(command=["x"] * 500_000)),
    Input("words of another type", "50 faults are named", lambda: plan(command=[1] * 900_000)),
    Input("an output pattern", "128 folders", lambda: plan(outputs=["a/" * 2000 + "z"])),
    Input("unknown fields", "50 faults are named", lambda: posted(job(**{f"wrong-{n}": n for n in range(190_000)}))),
    Input("many unknown fields", "200,000 parts", lambda: posted(job(**{f"w{n}": 1 for n in range(260_000)}))),
    Input("a long field name", "shortened", lambda: posted(job(**{"x" * 2_900_000: 1}))),
    Input(
        "wrong labels",
        "256 labels of a site",
        lambda: plan(placement={"labels": {f"!{n}": "!" for n in range(90_000)}}),
    ),
    Input(
        "labels", "50 faults are named", lambda: posted(job(metadata={"labels": {f"!{n}": "!" for n in range(90_000)}}))
    ),
    Input("annotations", "256 KiB", lambda: posted(job(metadata={"annotations": {"a": "x" * 300_000}}))),
    Input(
        "an object", "1.5 MiB", lambda: posted(job(env=[{"name": f"A{n}", "value": "x" * 100_000} for n in range(20)]))
    ),
    Input("owners", "32", lambda: posted(job(metadata={"ownerReferences": [owner(n) for n in range(20_000)]}))),
    Input("finalizers", "32", lambda: posted(job(metadata={"finalizers": [f"a/{n}" for n in range(90_000)]}))),
    Input("a body", "3 MiB", lambda: Request("POST", JOBS, b" " * 2**22)),
    Input("depth of JSON", "64", lambda: Request("POST", JOBS, b'{"a":' * 500_000)),
    Input("depth of YAML", "64", lambda: Request("POST", JOBS, b"[" * 2_900_000, YAML)),
    Input("parts of YAML", "200,000", lambda: Request("POST", JOBS, b"- a\n" * 700_000, YAML)),
    Input("anchors of YAML", "200,000 parts", lambda: Request("POST", JOBS, _anchors(), YAML)),
    Input("moves of a patch", "10,000 operations", lambda: patched(_moves())),
    Input("depth by a patch", "64 names in a pointer", lambda: patched(_nest())),
    Input("lists in a patch", "50 million entries moved", lambda: patched(_shifts())),
    Input("copies in a patch", "4 MiB", lambda: patched(_copies())),
    Input("a pointer of a patch", "64 names", lambda: patched([{"op": "remove", "path": "/a" * 1_400_000}])),
    Input(
        "a label selector",
        "64 requirements, 1,000 values, 16 KiB",
        lambda: Request("GET", f"{JOBS}?labelSelector=" + ",".join(["a=b"] * 1100)),
    ),
    Input(
        "values of a selector",
        "1,000",
        lambda: Request("GET", f"{JOBS}?labelSelector=a+in+(" + ",".join(["b"] * 5000) + ")"),
    ),
    Input(
        "a field selector",
        "64 requirements",
        lambda: Request("GET", f"{JOBS}?fieldSelector=" + "metadata.name=a," * 1100),
    ),
    Input("a continue token", "2,048 characters", lambda: Request("GET", f"{JOBS}?continue=" + "A" * 40_000)),
    Input("a version", "18 digits", lambda: Request("GET", f"{JOBS}?watch=1&resourceVersion=" + "9" * 4000)),
    Input("a limit", "18 digits", lambda: Request("GET", f"{JOBS}?limit=%C2%B2")),
    Input("an attempt of metrics", "9 digits", lambda: Request("GET", f"{JOBS}/patched/metrics?attempt=%C2%B2")),
    Input("an attempt of a log", "digits", lambda: Request("GET", f"{JOBS}/patched/log?attempt=%C2%B2")),
    Input("an offset of a log", "2^62", lambda: Request("GET", f"{JOBS}/patched/log?offset=" + "9" * 19)),
    Input("NUL in a name", "none", lambda: Request("GET", f"{JOBS}/a%00b")),
    Input("headers", "64 KiB", lambda: Request("GET", JOBS, headers={"X-Long": "x" * 60_000}), frozenset({200})),
    Input("ranges of a file", "16", lambda: Request("GET", f"{HERE}/files/sha256:" + "0" * 64, headers=_ranges())),
    Input(
        "an upload's rules",
        "4,096 characters each",
        lambda: upload([_DEEP + "/b"] * 500, "**/a" * 900),
        frozenset({200}),
    ),
    Input("stars in a rule", "linear time", lambda: upload(["a" * 250] * 500, "*a" * 120 + "b"), frozenset({200})),
    Input("fields of a form", "1,000", lambda: form("x=" + "y" * 3000 + "&", 1000), FORM),
    Input("a field of a form", "3 MiB", lambda: form("manifest=" + "%41" * 1_000_000), FORM),
    Input(
        "a manifest in the editor",
        "64 deep, 200,000 parts",
        lambda: form("mode=manifest&manifest=" + "-%20a%0A" * 340_000),
        FORM,
    ),
    Input(
        "faults in the editor",
        "50 are named",
        lambda: form(
            "mode=manifest&manifest=kind:%20Job%0Aspec:%0A" + "".join(f"%20w{n}:%20a%0A" for n in range(150_000))
        ),
        FORM,
    ),
    Input(
        "digests asked for",
        "100,000",
        lambda: posted({"digests": ["sha256:" + "0" * 64] * 120_000}, f"{HERE}/files/missing"),
    ),
    Input("wrong digests", "50 faults are named", lambda: posted({"digests": [1] * 90_000}, f"{HERE}/files/missing")),
    Input("a tree", "paths of 4,096 characters", lambda: tree([{"path": "a/" * 4000 + "b"}] * 300)),
    Input("links of a tree", "linear time", lambda: tree(_links()), frozenset({200})),
    Input("files of a tree", "64 MiB", lambda: tree([{"path": f"{n}", "link": "x"} for n in range(1_500_000)])),
    Input("parts of a tree", "64 MiB", lambda: tree([{"path": []}] * 4_000_000)),
    Input(
        "cells of an experiment",
        "1,000",
        lambda: posted(experiment([{"name": f"p{n}", "values": list(range(1000))} for n in range(32)]), EXPERIMENTS),
    ),
    Input(
        "steps of a range",
        "1,000 cells",
        lambda: posted(
            experiment([{"name": "p", "range": {"min": -1e308, "max": 1e308, "step": 5e-324}}]), EXPERIMENTS
        ),
    ),
    Input("a moment of metrics", "a number", lambda: Request("GET", f"{HERE}/telemetry/influx?since=" + "9" * 50_000)),
    Input(
        "where a log goes on",
        "20 digits",
        lambda: Request(
            "GET",
            f"{JOBS}/patched/log",
            headers={"Last-Event-ID": "9" * 50_000, "Accept": "text/event-stream"},
        ),
    ),
    Input("topics of a page", "bounded", lambda: Request("GET", "/console/live?on=" + "&on=jobs" * 7000)),
    Input("rules times paths", "50 million", lambda: upload(["f"] * 20_000, "x\n" * 5000)),
    Input("depth of an upload", "128 folders", lambda: upload(["a/" * 2000 + "b"], "x")),
    Input(
        "a mark of the console",
        "18 digits",
        lambda: Request("GET", "/console/live?on=jobs&mark=%C2%B2"),
        frozenset({200}),
    ),
)


def form(text: str, times: int = 1) -> Request:
    return Request("POST", "/console/submit/manifest", (text * times).encode(), "application/x-www-form-urlencoded")


def tree(files: list[dict[str, Any]]) -> Request:
    return Request("PUT", f"{HERE}/files/tree", json.dumps({"files": files}).encode())


def _links() -> list[dict[str, Any]]:
    """Each leads to the next."""
    return [{"path": f"l{n}", "link": f"l{n + 1}"} for n in range(20_000)]


def experiment(parameters: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = {"apiVersion": "isthmus.dev/v1", "kind": "Experiment", "metadata": {"name": "hostile"}}
    return {**metadata, "spec": {"template": {"command": ["true"]}, "parameters": parameters}}


def owner(number: int) -> dict[str, str]:
    return {"apiVersion": "isthmus.dev/v1", "kind": "Job", "name": f"owner-{number}", "uid": f"uid-{number}"}


def _anchors() -> bytes:
    return b"a: &a [1]\n" + b"".join(b"b%d: *a\n" % number for number in range(150_000))


def _ranges() -> dict[str, str]:
    return {"Range": "bytes=" + ",".join(f"{n}-{n}" for n in range(0, 10_000, 2))}
