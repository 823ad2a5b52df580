"""Contents in a folder: kept whole, each tenant's apart, nothing left after a fault."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.errors import Invalid, NotFound, StoreUnavailable
from isthmus.resources.work.trees import Tree, TreeFile, digest_of
from isthmus.storage.base import Blobs
from isthmus.storage.directory import DirectoryBlobs

pytestmark = pytest.mark.anyio


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.fixture
async def blobs(tmp_path: Path) -> DirectoryBlobs:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    await blobs.open()
    return blobs


def left(root: Path) -> list[Path]:
    """Everything that is a file, but contents in their places."""
    return [p for p in root.rglob("*") if p.is_file() and "sha256" not in p.parts]


async def test_a_content_comes_back_as_it_was(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    contract: Blobs = blobs
    data = os.urandom(3_000_000)
    digest = digest_of(data)
    assert await contract.put("a", digest, stream(data[:10], b"", data[10:2_500_000], data[2_500_000:])) == len(data)
    path = contract.path("a", digest)
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "blobs").rglob("*") if p.is_dir()} == {0o700}
    assert left(tmp_path) == []


async def test_an_empty_content_can_be_kept(blobs: DirectoryBlobs) -> None:
    assert await blobs.put("a", digest_of(b""), stream()) == 0
    assert blobs.path("a", digest_of(b"")).read_bytes() == b""


@pytest.mark.parametrize("size", [5, 3_000_000])
async def test_a_wrong_digest_keeps_nothing(blobs: DirectoryBlobs, tmp_path: Path, size: int) -> None:
    digest = digest_of(b"something else")
    with pytest.raises(Invalid, match="send it again"):
        await blobs.put("a", digest, stream(b"x" * size))
    assert await blobs.missing("a", [digest]) == [digest]
    assert left(tmp_path) == []


async def test_tenants_share_nothing(blobs: DirectoryBlobs) -> None:
    digest = digest_of(b"secret")
    await blobs.put("a", digest, stream(b"secret"))
    assert await blobs.missing("b", [digest]) == [digest]
    with pytest.raises(NotFound):
        blobs.path("b", digest)


BAD_NAMESPACES = ["", ".", "..", "../a", "a/b", "/a", ".incoming", "A", "a\0", "a" * 300, "a\n"]
BAD_DIGESTS = ["", "sha256:", "sha256:../../etc/passwd", "md5:" + "0" * 64, "sha256:" + "0" * 63, "sha256:" + "A" * 64]


@pytest.mark.parametrize("namespace", BAD_NAMESPACES)
async def test_a_bad_namespace_is_refused_everywhere(blobs: DirectoryBlobs, namespace: str, tmp_path: Path) -> None:
    digest = digest_of(b"")
    for call in (
        blobs.put(namespace, digest, stream(b"")),
        blobs.missing(namespace, [digest]),
        blobs.put_file(namespace, tmp_path),
        blobs.put_tree(namespace, Tree()),
        blobs.get_tree(namespace, digest),
        blobs.drop(namespace),
    ):
        with pytest.raises(Invalid):
            await call


@pytest.mark.parametrize("digest", [*BAD_DIGESTS, "sha256:" + "0" * 64 + "\n"])
async def test_a_bad_digest_is_refused_everywhere(blobs: DirectoryBlobs, digest: str) -> None:
    for call in (blobs.put("a", digest, stream(b"")), blobs.missing("a", [digest]), blobs.get_tree("a", digest)):
        with pytest.raises(Invalid):
            await call
    with pytest.raises(Invalid):
        blobs.path("a", digest)


async def test_the_same_content_at_once(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    data = os.urandom(2_000_000)
    digest = digest_of(data)
    sizes = await asyncio.gather(*(blobs.put("a", digest, stream(data)) for _ in range(8)))
    assert sizes == [len(data)] * 8
    assert blobs.path("a", digest).read_bytes() == data
    assert left(tmp_path) == []


async def test_a_cancelled_upload_leaves_nothing(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    written = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        written.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(blobs.put("a", digest_of(b""), endless()))
    await asyncio.wait_for(written.wait(), 20)
    assert len(left(tmp_path)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left(tmp_path) == []


async def test_a_failing_sender_leaves_nothing(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 2_000_000
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        await blobs.put("a", digest_of(b""), broken())
    assert left(tmp_path) == []


async def test_open_removes_what_a_crash_left_and_nothing_else(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    incoming = tmp_path / "blobs" / ".incoming"
    (incoming / "0123").write_bytes(b"left by a crash")
    (incoming / "dropped-1").mkdir()
    (incoming / "dropped-1" / "file").write_bytes(b"x")
    going_on, go = asyncio.Event(), asyncio.Event()
    data = b"y" * 2_000_000

    async def slow() -> AsyncIterator[bytes]:
        yield data
        going_on.set()
        await go.wait()

    task = asyncio.create_task(blobs.put("a", digest_of(data), slow()))
    await asyncio.wait_for(going_on.wait(), 20)
    await DirectoryBlobs(tmp_path / "blobs").open()
    assert len(list(incoming.iterdir())) == 1
    go.set()
    assert await task == len(data)
    assert list(incoming.iterdir()) == []


async def test_files_are_copied_and_links_are_not_followed(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert await blobs.put_file("a", tmp_path / "file") == (digest_of(b"data"), 4)
    (tmp_path / "file").write_bytes(b"changed")
    assert blobs.path("a", digest_of(b"data")).read_bytes() == b"data"
    for name in ("link", "pipe", "."):
        with pytest.raises(Invalid, match="regular file"):
            await blobs.put_file("a", tmp_path / name)
    with pytest.raises(Invalid, match="regular file"):
        await blobs.put_file("a", Path("/dev/null"))
    with pytest.raises(NotFound):
        await blobs.put_file("a", tmp_path / "nothing")


async def test_trees_come_back_and_other_contents_are_not_trees(blobs: DirectoryBlobs) -> None:
    tree = Tree(files=[TreeFile(path="b", size=1, digest=digest_of(b"x")), TreeFile(path="a", link="b")])
    digest = await blobs.put_tree("a", tree)
    assert {f.path: f for f in (await blobs.get_tree("a", digest)).files} == {f.path: f for f in tree.files}
    await blobs.put("a", digest_of(b"{}x"), stream(b"{}x"))
    with pytest.raises(Invalid, match="not a tree"):
        await blobs.get_tree("a", digest_of(b"{}x"))
    with pytest.raises(NotFound):
        await blobs.get_tree("a", digest_of(b"never"))


async def test_drop_removes_one_tenant(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    for namespace in ("a", "b"):
        await blobs.put(namespace, digest_of(b"x"), stream(b"x"))
    await blobs.drop("a")
    await blobs.drop("a")
    assert await blobs.missing("a", [digest_of(b"x")]) == [digest_of(b"x")]
    assert blobs.path("b", digest_of(b"x")).read_bytes() == b"x"
    assert not (tmp_path / "blobs" / "a").exists()
    assert left(tmp_path) == []


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chunks=st.lists(st.binary(max_size=3000), max_size=6), claimed=st.none() | st.binary(max_size=10))
def test_what_is_kept_is_what_its_digest_says(tmp_path: Path, chunks: list[bytes], claimed: bytes | None) -> None:
    async def scenario() -> None:
        blobs = DirectoryBlobs(tmp_path / "p")
        data = b"".join(chunks)
        digest = digest_of(data if claimed is None else claimed)
        if digest == digest_of(data):
            assert await blobs.put("t", digest, stream(*chunks)) == len(data)
            assert blobs.path("t", digest).read_bytes() == data
        else:
            with pytest.raises(Invalid):
                await blobs.put("t", digest, stream(*chunks))
        assert left(tmp_path / "p") == []

    asyncio.run(scenario())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte: a mount where that is allowed, in a namespace of its own otherwise."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.real
async def test_a_full_disk_is_told_and_nothing_is_left(small_disk: Path) -> None:
    blobs = DirectoryBlobs(small_disk / "blobs")
    await blobs.open()
    big = os.urandom(3_000_000)
    with pytest.raises(StoreUnavailable, match="disk that keeps files is full"):
        await blobs.put("a", digest_of(big), stream(big))
    source = small_disk.parent / "big"
    source.write_bytes(big)
    with pytest.raises(StoreUnavailable):
        await blobs.put_file("a", source)
    assert left(small_disk) == []
    assert await blobs.put("a", digest_of(b"small"), stream(b"small")) == 5
