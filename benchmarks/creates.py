"""Creating jobs through the API, against durable inserts of plain SQLite."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

from .load import wrk
from .reads import CREATE, JOBS
from .report import Figure, Section
from .servers import isthmus


def durable_inserts(seconds: float, size: int) -> float:
    """Rows per second with one commit per row, journalled and synced as the store does it."""
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        database = sqlite3.connect(Path(folder) / "plain.db", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, data BLOB)")
        body, count, start = b"x" * size, 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            database.execute("INSERT INTO rows (data) VALUES (?)", (body,))
            count += 1
        rate = count / (time.perf_counter() - start)
        database.close()
        return rate


def run(seconds: int) -> Section:
    section = Section(
        "Creating jobs",
        "POST of a manifest, validated, defaulted, authorised and committed (SQLite, WAL, synchronous=FULL) before the "
        "answer. The baseline is a loop of single-row commits in plain SQLite with the same durability. Concurrent "
        "requests share a commit.",
    )
    with isthmus() as server:
        before = durable_inserts(seconds, 900)
        for clients in (1, 16, 128):
            load = wrk(server.url + JOBS, token=server.token, connections=clients, seconds=seconds, script=CREATE)
            base = (before + durable_inserts(seconds, 900)) / 2
            ratio = load.per_second / base
            aim = ("≥ 0.50, no errors", ratio >= 0.5 and not load.errors) if clients == 128 else ("", None)
            measured = f"{load.per_second:,.0f}/s, p99 {load.p99_ms:.0f} ms, {load.errors} errors"
            section.figures.append(Figure(f"{clients} clients", measured, f"{base:,.0f}/s", ratio, *aim))
    return section
