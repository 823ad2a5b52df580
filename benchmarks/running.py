"""Overhead of running one job: the whole of `isthmus run -- true`, and the engine's part of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from .reads import JOBS
from .report import Figure, Section
from .servers import Server, isthmus


def run(seconds: int) -> Section:
    count = max(20, seconds * 8)
    section = Section(
        "Running one job",
        "The command line against a server that is up, in an empty folder: a new process of `isthmus`, the job sent, "
        "started in its sandbox, its output followed, its exit code returned. Beside it the way from accepted "
        "to started.",
    )
    with isthmus() as server, tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
        command = shutil.which("isthmus", path=str(Path(sys.executable).parent)) or "isthmus"
        plain = _times(["true"], folder, environment, count)
        python = _times([sys.executable, "-c", "pass"], folder, environment, count)
        ours = _times([command, "run", "--", "true"], folder, environment, count)
        over50, over99 = at_share(ours, 0.5) - at_share(plain, 0.5), at_share(ours, 0.99) - at_share(plain, 0.99)
        base = f"`true` {at_share(plain, 0.5):.1f} ms, `python -c pass` {at_share(python, 0.5):.1f} ms"
        reported = f"p50 +{over50:.0f} ms, p99 +{over99:.0f} ms"
        section.figures.append(
            Figure("`isthmus run -- true` over `true`", reported, base, None, "p50 150 ms", over50 <= 150)
        )
        started = accepted_to_started(server, count)
        reported = f"p50 {at_share(started, 0.5):.1f} ms, p99 {at_share(started, 0.99):.1f} ms"
        section.figures.append(
            Figure("accepted to started", reported, "", None, "p50 20 ms", at_share(started, 0.5) <= 20)
        )
    return section


def _times(words: list[str], folder: str, environment: dict[str, str], count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        subprocess.run(words, check=True, cwd=folder, env=environment, capture_output=True)
        times.append((time.perf_counter() - start) * 1000)
    return sorted(times)


def at_share(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(len(times) * share))]


def accepted_to_started(server: Server, count: int, prefix: str = "start") -> list[float]:
    """From the answer of the creating request to the start that the supervisor wrote down."""
    delays = []
    for number in range(count):
        name = f"{prefix}-{number}"
        job = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"command": ["true"]}}
        server.request(JOBS, job)
        accepted = time.time()
        while True:
            status = server.request(f"{JOBS}/{name}")["status"]
            if status["phase"] in ("Succeeded", "Failed"):
                break
            time.sleep(0.01)
        delays.append(max(0.0, (datetime.fromisoformat(status["startedAt"]).timestamp() - accepted) * 1000))
    return sorted(delays)
