"""Time series in an embedded database: how far each run was read, and the points that were made of it.

What was read and what it made are written in one transaction: after a crash, reading goes on where it stopped. The
series of a run are bounded: when one is longer than `MAX_POINTS`, all but its newest points are averaged.
Everything here can be read again from the site as long as the job exists, so the database is forgotten bit by bit:
runs that nobody asked for in a week, and the oldest when there are too many.

Points have numbers that only grow. A cursor is such a number with the database's own mark; one of another database
(another replica's, or one that was removed) is answered with everything.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isthmus._kit.ids import suffix
from isthmus.errors import StoreUnavailable

from .journals import Point, Sample

MAX_POINTS = 1200
"""Of one series."""
NEWEST = 300
"""Points that are never averaged."""
STRETCHES = 450
"""What the others are averaged to."""
KEPT_SECONDS = 7 * 86_400.0
MAX_TOTAL = 20_000_000
"""Points in all: about 1 GB."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS mark (value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, samples INTEGER NOT NULL DEFAULT 0,
    output INTEGER NOT NULL DEFAULT 0, last TEXT, marks TEXT NOT NULL DEFAULT '[]',
    names TEXT NOT NULL DEFAULT '[]',
    estimated INTEGER NOT NULL DEFAULT 0, over INTEGER NOT NULL DEFAULT 0, touched REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS points (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, name TEXT NOT NULL,
    at REAL NOT NULL, value REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS points_of_run ON points (run, name, seq);
"""


@dataclass(slots=True)
class Progress:
    """How far a run was read."""

    samples: int = 0
    """Bytes of the journal."""
    output: int = 0
    """Bytes of its output."""
    last: Sample | None = None
    marks: list[tuple[float, float]] = field(default_factory=list)
    """Bytes of output and when they were there: of the part that is not read yet."""
    names: list[str] = field(default_factory=list)
    """Names of reported values that there are series of."""
    estimated: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """Points by series, the number of the newest, and whether they are all there are."""

    series: dict[str, list[tuple[float, float]]]
    cursor: str
    reset: bool
    estimated: bool
    over: bool


class SeriesStore:
    """The database. Blocking: call it in a thread; threads take turns."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._path = path
        self._db = self._open()
        row = self._db.execute("SELECT value FROM mark").fetchone()
        if row is None:
            self._db.execute("INSERT INTO mark VALUES (?)", (suffix(8),))
            row = self._db.execute("SELECT value FROM mark").fetchone()
        self._mark: str = row[0]

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError:
            # Damaged beyond use: it holds nothing that cannot be read again.
            for end in ("", "-wal", "-shm"):
                Path(f"{self._path}{end}").unlink(missing_ok=True)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=10)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(_SCHEMA)
        return db

    def close(self) -> None:
        """Let go."""
        with self._lock:
            self._db.close()

    def progress(self, run: str) -> Progress:
        """How far a run was read."""
        with self._lock:
            row = self._db.execute(
                "SELECT samples, output, last, marks, names, estimated, over FROM runs WHERE run = ?", (run,)
            ).fetchone()
        if row is None:
            return Progress()
        last = Sample(*json.loads(row[2])) if row[2] else None
        marks = [(float(a), float(b)) for a, b in json.loads(row[3])]
        return Progress(row[0], row[1], last, marks, json.loads(row[4]), bool(row[5]), bool(row[6]))

    def add(self, run: str, progress: Progress, points: Sequence[Point], now: float) -> None:
        """Keep what was read, and how far; all of it or nothing. Raises StoreUnavailable."""
        last = json.dumps(progress.last) if progress.last else None
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute(
                    "INSERT INTO runs (run, samples, output, last, marks, names, estimated, over, touched) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET samples = excluded.samples, "
                    "output = excluded.output, last = excluded.last, marks = excluded.marks, names = excluded.names, "
                    "estimated = excluded.estimated, over = excluded.over, touched = excluded.touched",
                    (run, progress.samples, progress.output, last, json.dumps(progress.marks),
                     json.dumps(progress.names), progress.estimated, progress.over, now),
                )  # fmt: skip
                number = self._number(run)
                rows = [(number, point.name, point.at, point.value) for point in points]
                self._db.executemany("INSERT INTO points (run, name, at, value) VALUES (?, ?, ?, ?)", rows)
                for name in {point.name for point in points}:
                    self._shorten(number, name)
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise StoreUnavailable(f"series could not be written to {self._path.name}: {error}") from error

    def _number(self, run: str) -> int:
        row = self._db.execute("SELECT id FROM runs WHERE run = ?", (run,)).fetchone()
        return int(row[0]) if row else 0

    def _shorten(self, run: int, name: str) -> None:
        """Average all but the newest over stretches of equal length: the whole run stays visible, evenly.

        The last of a stretch keeps its number, so that no cursor misses or repeats it.
        """
        where = "FROM points WHERE run = ? AND name = ?"
        (count,) = self._db.execute(f"SELECT count(*) {where}", (run, name)).fetchone()
        if count <= MAX_POINTS:
            return
        query = f"SELECT seq, at, value {where} ORDER BY seq LIMIT ?"
        old = self._db.execute(query, (run, name, count - NEWEST)).fetchall()
        begin = min(at for _, at, _ in old)
        width = (max(at for _, at, _ in old) - begin) / STRETCHES or 1.0
        stretches: dict[int, list[tuple[int, float, float]]] = {}
        for row in old:
            stretches.setdefault(int((row[1] - begin) / width), []).append(row)
        for rows in stretches.values():
            if len(rows) < 2:
                continue
            at, value = (sum(row[n] for row in rows) / len(rows) for n in (1, 2))
            self._db.execute("UPDATE points SET at = ?, value = ? WHERE seq = ?", (at, value, rows[-1][0]))
            self._db.executemany("DELETE FROM points WHERE seq = ?", [(row[0],) for row in rows[:-1]])

    def read(self, run: str, since: str | None) -> Found:
        """The points of a run after a cursor."""
        after = self._after(since)
        with self._lock:
            row = self._db.execute("SELECT id, estimated, over FROM runs WHERE run = ?", (run,)).fetchone()
            number, estimated, over = row or (0, 0, 0)
            rows = self._db.execute(
                "SELECT name, at, value, seq FROM points WHERE run = ? AND seq > ? ORDER BY name, seq",
                (number, after or 0),
            ).fetchall()
        series: dict[str, list[tuple[float, float]]] = {}
        newest = after or 0
        for name, at, value, seq in rows:
            series.setdefault(name, []).append((at, value))
            newest = max(newest, seq)
        return Found(series, f"{self._mark}-{newest}", after is None, bool(estimated), bool(over))

    def _after(self, since: str | None) -> int | None:
        mark, _, number = (since or "").partition("-")
        return (
            int(number) if mark == self._mark and number.isascii() and number.isdigit() and len(number) < 19 else None
        )

    def latest(self, run: str) -> dict[str, tuple[float, float]]:
        """The newest point of each series of a run."""
        with self._lock:
            rows = self._db.execute(
                "SELECT name, at, value FROM points WHERE seq IN "
                "(SELECT max(seq) FROM points WHERE run = (SELECT id FROM runs WHERE run = ?) GROUP BY name)",
                (run,),
            ).fetchall()
        return {name: (at, value) for name, at, value in rows}

    def sweep(self, now: float, *, kept_seconds: float = KEPT_SECONDS, max_total: int = MAX_TOTAL) -> int:
        """Forget runs that nobody asked for lately, and the oldest when there are too many points; how many runs."""
        with self._lock:
            gone = [id_ for (id_,) in self._db.execute("SELECT id FROM runs WHERE touched < ?", (now - kept_seconds,))]
            (total,) = self._db.execute("SELECT count(*) FROM points").fetchone()
            if total > max_total:
                for id_, count in self._db.execute(
                    "SELECT r.id, (SELECT count(*) FROM points p WHERE p.run = r.id) FROM runs r ORDER BY touched"
                ).fetchall():
                    if total <= max_total:
                        break
                    gone.append(id_)
                    total -= count
            for id_ in set(gone):
                self._db.execute("DELETE FROM points WHERE run = ?", (id_,))
                self._db.execute("DELETE FROM runs WHERE id = ?", (id_,))
        return len(set(gone))
