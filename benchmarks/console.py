"""The console in a real browser: first paint among many jobs, cancel pressed to state shown, consoles left open."""

from __future__ import annotations

import json
import re
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

from isthmus.testing.browsers import chromium, signed_in

from .reads import JOBS
from .report import Figure, Section
from .servers import Server, cpu_seconds, isthmus

FEW, MANY, PAINTS, CANCELS, CONSOLES, QUIET = 100, 10_000, 25, 40, 100, 20
PAINT = """() => new Promise((done) => new PerformanceObserver((list) => {
    for (const entry of list.getEntriesByName("first-contentful-paint")) done(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""
CANCEL = """() => new Promise((done) => {
    document.querySelector('[data-key="c"]').click();
    const began = performance.now();
    const shown = () => document.querySelector(".head .phase").dataset.phase === "Cancelled";
    const look = () => shown() && (watch.disconnect(), done(performance.now() - began));
    const watch = new MutationObserver(look);
    watch.observe(document.body, { subtree: true, childList: true, attributes: true });
    document.querySelector('#ask [value="yes"]').click();
})"""


def run(seconds: int) -> Section:
    section = Section(
        "The console",
        f"Debian's Chromium on the same cores. First paint: median of {PAINTS} loads of the list of jobs, everything "
        "cached that may be. Cancel: from the confirmation to the word on the page; of jobs that wait (no engine has a "
        "part in it), and of running ones, where ending the processes counts too. Consoles left open: their streams, "
        f"half on the list, half on a job with its log, while nothing changes for {QUIET} s.",
    )
    with isthmus() as small, isthmus() as server, chromium() as browser:
        _create(small, 0, FEW)
        _create(server, 0, MANY)
        few, many = _first_paints(browser, small, server)
        ratio = many / few
        base = f"{few:.0f} ms with {FEW}"
        section.figures.append(
            Figure(f"first paint of {MANY:,} jobs", f"{many:.0f} ms", base, ratio, "< 1.5", ratio < 1.5)
        )
        waiting = _cancels(browser, server, [f"job-{number}" for number in range(CANCELS)], "Held")
        p95 = _p95(waiting)
        reported = f"p50 {statistics.median(waiting):.0f} ms, p95 {p95:.0f} ms"
        section.figures.append(Figure("cancel to shown, waiting job", reported, "", None, "p95 < 300 ms", p95 < 300))
        running = _cancels(browser, server, _start(server, CANCELS // 4), "Running")
        reported = f"p50 {statistics.median(running):.0f} ms, p95 {_p95(running):.0f} ms"
        section.figures.append(Figure("cancel to shown, running job", reported))
        alone, together = _left_open(server)
        reported = f"{together * 100:.1f} % of a core"
        base = f"{alone * 100:.1f} % with none"
        section.figures.append(
            Figure(f"{CONSOLES} consoles left open", reported, base, None, "< 25 %", together < 0.25)
        )
    return section


def _first_paints(browser: Any, *servers: Server) -> list[float]:
    """Of each server, in turns, so that whatever else the machine does hits all of them alike."""
    pages = [signed_in(browser, one.url, one.token, viewport={"width": 1280, "height": 900}) for one in servers]
    found: list[list[float]] = [[] for _ in servers]
    for turn in range(PAINTS + 3):
        for page, paints in zip(pages, found, strict=True):
            page.goto("/console/jobs", wait_until="load")
            paint = float(page.evaluate(PAINT))
            page.goto("about:blank")
            if turn >= 3:
                paints.append(paint)
    for page in pages:
        page.context.close()
    return [statistics.median(paints) for paints in found]


def _cancels(browser: Any, server: Server, names: list[str], phase: str) -> list[float]:
    page = signed_in(browser, server.url, server.token, viewport={"width": 1280, "height": 900})
    found = []
    for name in names:
        page.goto(f"/console/jobs/default/{name}")
        page.locator(f".head .phase[data-phase={phase}]").wait_for()
        page.wait_for_timeout(1500)  # its streams are open and it is quiet, as when somebody looks at it
        found.append(float(page.evaluate(CANCEL)))
    page.context.close()
    return sorted(found)


def _p95(values: list[float]) -> float:
    return values[min(len(values) - 1, int(len(values) * 0.95))]


def _start(server: Server, count: int) -> list[str]:
    names = [f"sleeps-{number}" for number in range(count)]
    for name in names:
        spec = {"command": ["sleep", "3600"], "priority": 9, "resources": {"cpus": "10m"}}
        server.request(JOBS, {"kind": "Job", "metadata": {"name": name}, "spec": spec})
    return names


def _create(server: Server, first: int, end: int) -> None:
    """Jobs that are held, so that nothing happens by itself."""
    place = urlsplit(server.url)

    def some(start: int) -> None:
        connection = HTTPConnection(place.hostname or "", place.port)
        headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        for number in range(start, end, 8):
            job = {
                "kind": "Job",
                "metadata": {"name": f"job-{number}"},
                "spec": {"command": ["true"], "intent": "Hold"},
            }
            connection.request("POST", JOBS, json.dumps(job), headers)
            answer = connection.getresponse()
            if answer.status != 201:
                raise RuntimeError(answer.read().decode())
            answer.read()
        connection.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(first, first + 8)))


def _left_open(server: Server) -> tuple[float, float]:
    """How much of a core the server uses with no console, and with many."""
    alone = _use(server)
    cookie = _cookie(server)
    job = f"/console/jobs/default/job-{MANY - 1}"
    streams = []
    for number in range(CONSOLES):
        paths = (
            ["/console/live?on=jobs"]
            if number % 2
            else [f"/console/live?on=jobs/default/job-{MANY - 1}", f"{job}/log?follow=true"]
        )
        streams += [_open(server, path, cookie) for path in paths]
    time.sleep(2)
    together = _use(server)
    for stream in streams:
        stream.close()
    return alone, together


def _use(server: Server) -> float:
    before, began = cpu_seconds(server.process.pid), time.monotonic()
    time.sleep(QUIET)
    return (cpu_seconds(server.process.pid) - before) / (time.monotonic() - began)


def _cookie(server: Server) -> str:
    place = urlsplit(server.url)
    connection = HTTPConnection(place.hostname or "", place.port)
    connection.request("GET", "/console/sign-in")
    answer = connection.getresponse()
    visit = (answer.getheader("set-cookie") or "").partition(";")[0]
    code = re.search(r'name="csrf" value="(\w+)"', answer.read().decode())
    body = urlencode({"csrf": code[1] if code else "", "token": server.token})
    connection.request("POST", "/console/sign-in", body, {"Cookie": visit})
    answer = connection.getresponse()
    answer.read()
    return (answer.getheader("set-cookie") or "").partition(";")[0]


def _open(server: Server, path: str, cookie: str) -> socket.socket:
    place = urlsplit(server.url)
    stream = socket.create_connection((place.hostname, place.port))
    stream.sendall(
        f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nCookie: {cookie}\r\nAccept: text/event-stream\r\n\r\n".encode()
    )
    if not stream.recv(65536).startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{path} was refused")
    return stream
