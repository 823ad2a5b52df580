"""Storage quotas of tenants, and sparse files that stay sparse."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus.engines.collecting import collect
from isthmus.engines.local.staging import copy_content
from isthmus.errors import TooLarge
from isthmus.resources.work.trees import digest_of
from isthmus.storage.directory import DirectoryBlobs
from isthmus.storage.quotas import Allowance
from isthmus.storage.trees import TreeSink

pytestmark = pytest.mark.anyio
LIMIT = 300_000


async def allowance_of(namespace: str) -> Allowance | None:
    return {"small": Allowance(LIMIT), "loud": Allowance(LIMIT, elsewhere=200_000)}.get(namespace)


@pytest.fixture
async def blobs(tmp_path: Path) -> DirectoryBlobs:
    made = DirectoryBlobs(tmp_path / "blobs", allowance_of)
    await made.open()
    return made


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 50_000):
        yield content[start : start + 50_000]


async def test_files_sent_stay_within_the_quota(blobs: DirectoryBlobs) -> None:
    contents = [os.urandom(120_000) for _ in range(3)]
    for content in contents[:2]:
        await blobs.put("small", digest_of(content), chunks(content))
    with pytest.raises(TooLarge, match="storage quota of small"):
        await blobs.put("small", digest_of(contents[2]), chunks(contents[2]))
    await blobs.put("large", digest_of(contents[2]), chunks(contents[2]))
    await blobs.sweep("small", {digest_of(contents[0])}, -1)
    big = os.urandom(LIMIT + 1)
    with pytest.raises(TooLarge):
        await blobs.put("small", digest_of(big), chunks(big))


async def test_room_that_was_made_counts_at_once(blobs: DirectoryBlobs) -> None:
    first, second = os.urandom(290_000), os.urandom(290_000)
    await blobs.put("small", digest_of(first), chunks(first))
    with pytest.raises(TooLarge):
        await blobs.put("small", digest_of(second), chunks(second))
    await blobs.drop("small")
    await blobs.put("small", digest_of(second), chunks(second))


async def test_logs_and_folders_count_too(blobs: DirectoryBlobs) -> None:
    content = os.urandom(120_000)
    await blobs.put("small", digest_of(content), chunks(content))
    with pytest.raises(TooLarge, match="storage quota of loud"):
        await blobs.put("loud", digest_of(content), chunks(content))


async def test_what_a_job_left_is_kept_when_the_quota_is_used(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    full = os.urandom(LIMIT - 1)
    await blobs.put("small", digest_of(full), chunks(full))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "result").write_bytes(os.urandom(200_000))
    sink = TreeSink(blobs, "small")
    assert await collect(tmp_path / "work", os.getuid(), ["*"], sink, 10**9) == []
    assert (await sink.finish())[1:] == (1, 200_000)
    assert await blobs.used("small") > LIMIT
    with pytest.raises(TooLarge):
        await blobs.put("small", digest_of(b"more"), chunks(b"more"))


async def test_outputs_beyond_the_quota_are_left_out_and_named(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name, size in (("a", 200_000), ("b", 200_000), ("c", 1000)):
        (work / name).write_bytes(os.urandom(size))
    sink = TreeSink(blobs, "small")
    skipped = await collect(work, os.getuid(), ["*"], sink, 10**9)
    assert [sentence.split(" was not kept")[0] for sentence in skipped] == ["b"]
    assert "storage quota" in skipped[0]
    assert (await sink.finish())[1] == 2


async def test_a_tenant_without_room_can_still_end_its_jobs(blobs: DirectoryBlobs) -> None:
    full = os.urandom(LIMIT - 1)
    await blobs.put("small", digest_of(full), chunks(full))
    assert (await TreeSink(blobs, "small").finish())[1] == 0


async def test_sparse_files_stay_sparse(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    source = tmp_path / "sparse"
    with source.open("wb") as file:
        file.write(b"begin")
        file.seek(64 * 2**20)
        file.write(b"middle")
        file.truncate(128 * 2**20)
    descriptor = os.open(source, os.O_RDONLY)
    try:
        digest, size = await blobs.put_file("small", descriptor)
    finally:
        os.close(descriptor)
    assert size == 128 * 2**20
    kept = blobs.path("small", digest)
    assert kept.stat().st_size == size
    assert kept.stat().st_blocks * 512 < 2**20
    copy = os.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        copy_content(kept, copy)
        assert os.fstat(copy).st_size == size
        assert os.fstat(copy).st_blocks * 512 < 2**20
        assert os.pread(copy, 6, 64 * 2**20) == b"middle"
    finally:
        os.close(copy)
    assert digest == digest_of(source.read_bytes())
