"""`python -m benchmarks.against REVISION`: what requests and starts cost here, and what they cost in another revision.

Both servers run at the same time and are asked in turns, so that whatever else the machine does happens to both.
Requests are compared by the processor time of the servers, which others on the machine disturb least; starts by the
time from accepted to started, in the middle.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from .reads import JOBS
from .report import Figure, Section
from .running import accepted_to_started, at_share
from .servers import Server, isthmus

ROUNDS, READS, CREATES, STARTS = 8, 500, 200, 10
BEFORE = "dea3e6ce799effcc653c66f28c0700c1de9a6ced"
"""The last revision before hardening."""
START = "accepted to started, ms"


@contextlib.contextmanager
def source_of(revision: str) -> Iterator[Path]:
    """The sources of a revision, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="isthmus-against-") as folder:
        packed = subprocess.run(["git", "archive", revision, "src"], check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", folder], input=packed, check=True)
        yield Path(folder) / "src"


def cost(server: Server, method: str, path: str, bodies: list[bytes | None]) -> float:
    """Milliseconds of the server's processor for each request."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc)
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    before = busy_seconds(server.process.pid)
    for body in bodies:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status}")
    connection.close()
    return (busy_seconds(server.process.pid) - before) * 1000 / len(bodies)


def busy_seconds(pid: int) -> float:
    """Processor time of a process, finer than the ticks that `stat` counts in."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def held(prefix: str, count: int) -> list[bytes | None]:
    spec = {"command": ["true"], "intent": "Hold"}
    return [json.dumps({"metadata": {"name": f"{prefix}-{n}"}, "spec": spec}).encode() for n in range(count)]


def measured(revision: str) -> dict[str, tuple[float, float]]:
    """What each costs in the revision and here, in the middle of all rounds."""
    found: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    with source_of(revision) as source, isthmus(source) as then, isthmus() as now:
        pair = (then, now)
        for server in pair:
            cost(server, "POST", JOBS, held("first", 60))
        for number in range(ROUNDS):
            for which in (0, 1) if number % 2 else (1, 0):
                server = pair[which]
                found["read of one job, ms of cpu"][which].append(
                    cost(server, "GET", f"{JOBS}/first-0", [None] * READS)
                )
                page = cost(server, "GET", f"{JOBS}?limit=50", [None] * (READS // 5))
                found["read of a page of 50, ms of cpu"][which].append(page)
                create = cost(server, "POST", JOBS, held(f"round-{number}", CREATES))
                found["create, ms of cpu"][which].append(create)
                starts = accepted_to_started(server, STARTS, f"start-{number}")
                found[START][which].append(at_share(starts, 0.5))
    return {what: (at_share(sorted(a), 0.5), at_share(sorted(b), 0.5)) for what, (a, b) in found.items()}


def run(_seconds: int) -> Section:
    """The section of the page: what hardening costs. Needs the history of the repository."""
    section = Section(
        "What hardening costs",
        "Two servers at the same time, asked in turns: this one, and one of the sources before input was bounded and "
        f"jobs were given a network of their own ({BEFORE[:7]}). Requests by the processor time of the servers, starts "
        "by the time from accepted to started, in the middle. `python -m benchmarks.against REVISION` compares with "
        "any other.",
    )
    for what, (before, after) in measured(BEFORE).items():
        start = what == START
        target = "at most 3 ms more" if start else "at most 5 % more"
        met = after - before <= 3 if start else after / before <= 1.05
        section.add(Figure(what, f"{after:.3f}", f"{before:.3f}", after / before, target, met))
    return section


def main(revision: str) -> None:
    """Measure, and print."""
    for what, (one, other) in measured(revision).items():
        print(f"{what:<34} {revision[:12]} {one:7.3f}   here {other:7.3f}   {other / one:5.2f}  {other - one:+7.3f}")


if __name__ == "__main__":
    asking = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    asking.add_argument("revision", help="what to compare with: a commit, a tag, a branch")
    sys.exit(main(asking.parse_args().revision))
