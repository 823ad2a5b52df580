"""What was acknowledged is there after `kill -9` of the process, and of PostgreSQL."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.resources.kinds import JOB
from isthmus.store.base import Query
from isthmus.store.opening import open_store
from isthmus.store.settings import StoreSettings
from isthmus.testing.postgres import Postgres

pytestmark = pytest.mark.anyio
CHILD = Path(__file__).with_name("crashing.py")
ROUNDS = 4


def start_child(location: str, schema: str, prefix: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(CHILD), location, schema, prefix], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def read_names(child: subprocess.Popen[bytes], count: int) -> list[str]:
    assert child.stdout is not None
    return [child.stdout.readline().decode().strip() for _ in range(count)]


def end(child: subprocess.Popen[bytes]) -> list[str]:
    """Kill the child; what it had acknowledged and nobody had read yet."""
    child.kill()
    out, _ = child.communicate(timeout=60)
    # The last line may be cut short; whole lines were acknowledged.
    return out.decode().split("\n")[:-1]


async def check(location: str, schema: str, acknowledged: set[str]) -> None:
    store = await open_store(location, StoreSettings(schema=schema))
    try:
        page = await store.list(Query(JOB))
        kept = {record.key.name for record in page.records}
        assert acknowledged <= kept
        assert page.version == max(record.version for record in page.records)
        assert len({record.version for record in page.records}) == len(page.records)
        assert all(record.obj["metadata"]["resourceVersion"] == str(record.version) for record in page.records)
    finally:
        await store.close()


async def test_sqlite_survives_kill(tmp_path: Path) -> None:
    path = tmp_path / "isthmus.db"
    chance = random.Random(os.environ["ISTHMUS_TEST_SEED"])
    acknowledged: set[str] = set()
    for turn in range(ROUNDS):
        child = start_child(str(path), "isthmus", f"r{turn}")
        acknowledged |= {*read_names(child, chance.randrange(1, 800)), *end(child)}
        await check(str(path), "isthmus", acknowledged)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.fixture
def durable() -> Iterator[Postgres]:
    with Postgres(durable=True) as server:
        yield server


@pytest.mark.real
async def test_postgres_survives_kill(durable: Postgres) -> None:
    chance = random.Random(os.environ["ISTHMUS_TEST_SEED"])
    schema = f"t_{uuid.uuid4().hex}"
    acknowledged: set[str] = set()
    for turn in range(ROUNDS):
        child = start_child(durable.url, schema, f"r{turn}")
        names = read_names(child, chance.randrange(1, 300))
        if turn % 2:
            durable.kill()
            names += end(child)
            durable.start()
        else:
            names += end(child)
        acknowledged |= set(names)
        await check(durable.url, schema, acknowledged)
    assert len(acknowledged) >= ROUNDS
    assert os.path.exists(CHILD)
