"""Reads of one job, and of a page of 50 among 10,000, by 500 clients at once."""

from __future__ import annotations

import urllib.request

from .load import Load, wrk
from .report import Figure, Section
from .servers import Server, bare, isthmus

JOBS = "/apis/isthmus.dev/v1/namespaces/default/jobs"
CREATE = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"kind":"Job","metadata":{"generateName":"b-"},"spec":{"command":["true"],"intent":"Hold"}}'
"""


def run(seconds: int) -> Section:
    section = Section(
        "Reads",
        "500 keep-alive clients (wrk). The baseline is a Starlette endpoint that returns the same bytes, under "
        "uvicorn with uvloop and httptools; it checks no token and reads no store.",
    )
    with isthmus() as server:
        while _count(server) < 10_000:
            wrk(server.url + JOBS, token=server.token, connections=100, seconds=2, script=CREATE)
        name = server.request(JOBS + "?limit=1")["items"][0]["metadata"]["name"]
        for what, path in (("one job", f"{JOBS}/{name}"), ("a page of 50 of 10,000+", f"{JOBS}?limit=50")):
            request = urllib.request.Request(server.url + path, headers={"Authorization": f"Bearer {server.token}"})
            with urllib.request.urlopen(request) as answer:
                body = answer.read()
            with bare(body) as url:
                base = wrk(url, seconds=seconds)
                ours = wrk(server.url + path, token=server.token, seconds=seconds)
                again = wrk(url, seconds=seconds)
            section.figures.append(_figure(f"{what} ({len(body):,} bytes)", ours, base, again))
    return section


def _count(server: Server) -> int:
    return len(server.request(JOBS)["items"])


def _figure(what: str, ours: Load, *bases: Load) -> Figure:
    base = sum(b.per_second for b in bases) / len(bases)
    ratio = ours.per_second / base
    return Figure(
        what,
        f"{ours.per_second:,.0f}/s, p99 {ours.p99_ms:.0f} ms, {ours.errors} errors",
        f"{base:,.0f}/s",
        ratio,
        "≥ 0.40, no errors",
        ratio >= 0.4 and not ours.errors,
    )
