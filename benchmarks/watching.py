"""How long after a change 200 watchers know of it."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from urllib.parse import urlsplit

from .reads import JOBS
from .report import Figure, Section
from .servers import Server, isthmus

WATCHERS, CHANGES, PAUSE = 200, 200, 0.02


def run(seconds: int) -> Section:
    section = Section(
        "Watching",
        f"{WATCHERS} watchers over HTTP; {CHANGES} jobs are created one after the other. The time is from the moment "
        "the creating request is answered (or the change seen, if earlier: counted as 0) to the line's arrival, in a "
        "client on the same two cores, which also has to read all lines.",
    )
    with isthmus() as server:
        delays = asyncio.run(_measure(server))
    p50, p99 = statistics.median(delays), delays[int(len(delays) * 0.99)]
    one = f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(delays):,} deliveries"
    section.figures.append(Figure("change to watcher", one, "", None, "p99 < 20 ms", p99 < 20))
    return section


async def _measure(server: Server) -> list[float]:
    arrived: dict[str, list[float]] = {}
    ready = asyncio.Semaphore(0)
    watchers = [asyncio.create_task(_watch(server, arrived, ready)) for _ in range(WATCHERS)]
    for _ in range(WATCHERS):
        await ready.acquire()
    answered: dict[str, float] = {}
    reader, writer = await _connect(server)
    for number in range(CHANGES):
        name = f"w-{number}"
        job = {
            "apiVersion": "isthmus.dev/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"command": ["true"], "intent": "Hold"},
        }
        body = json.dumps(job).encode()
        head = f"POST {JOBS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        header = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in header.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        await reader.readexactly(length)
        answered[name] = time.perf_counter()
        await asyncio.sleep(PAUSE)
    deadline = time.monotonic() + 20
    while any(len(arrived.get(name, ())) < WATCHERS for name in answered) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    for task in watchers:
        task.cancel()
    await asyncio.gather(*watchers, return_exceptions=True)
    writer.close()
    missing = sum(WATCHERS - len(arrived.get(name, ())) for name in answered)
    if missing:
        raise RuntimeError(f"{missing} deliveries never arrived")
    return sorted(max(0.0, (moment - answered[name]) * 1000) for name, moments in arrived.items() for moment in moments)


async def _connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = urlsplit(server.url)
    return await asyncio.open_connection(place.hostname, place.port, limit=2**20)


async def _watch(server: Server, arrived: dict[str, list[float]], ready: asyncio.Semaphore) -> None:
    reader, writer = await _connect(server)
    head = f"GET {JOBS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    ready.release()
    seen: set[str] = set()
    while line := await reader.readline():
        moment = time.perf_counter()
        at = line.find(b'"name":"w-')
        if at >= 0:
            name = line[at + 8 : line.index(b'"', at + 8)].decode()
            if name not in seen:
                seen.add(name)
                arrived.setdefault(name, []).append(moment)
