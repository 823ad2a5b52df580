"""Packs and trees: what is well formed goes in and comes back, everything else is refused by name."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus.errors import Invalid, NotFound, TooLarge
from isthmus.resources.work.trees import Tree, TreeFile, digest_of
from isthmus.storage.directory import DirectoryBlobs
from isthmus.storage.packs import archive, unpack
from isthmus.storage.trees import TreeSink, TreeSource

pytestmark = pytest.mark.anyio
LIMIT = 2**30


def pack(contents: list[bytes], form: int = tarfile.USTAR_FORMAT, mtime: float = 0) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for data in contents:
            member = tarfile.TarInfo(digest_of(data))
            member.size = len(data)
            member.mtime = mtime
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    header = tarfile.TarInfo(name)
    header.size, header.type, header.linkname = len(data), kind, link
    return header.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


async def pieces(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def nothing_incoming(tmp_path: Path) -> None:
    """What a cancelled neighbour was writing goes when its thread is through."""
    async with asyncio.timeout(60):
        while list((tmp_path / "blobs" / ".incoming").iterdir()):
            await asyncio.sleep(0.01)


@pytest.fixture
async def blobs(tmp_path: Path) -> DirectoryBlobs:
    blobs = DirectoryBlobs(tmp_path / "blobs")
    await blobs.open()
    return blobs


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
async def test_a_pack_is_kept(blobs: DirectoryBlobs, form: int, tmp_path: Path) -> None:
    contents = [b"", b"x", b"y" * 512, os.urandom(1_500_000), *(os.urandom(100) for _ in range(40))]
    body = pack(contents, form, mtime=1.5)
    stored = await unpack(blobs, "a", pieces(body, 777 if form == tarfile.PAX_FORMAT else 65536), LIMIT)
    assert (stored.count, stored.bytes) == (len(contents), sum(map(len, contents)))
    for data in contents:
        assert blobs.path("a", digest_of(data)).read_bytes() == data
    assert list((tmp_path / "blobs" / ".incoming").iterdir()) == []


DIGEST = digest_of(b"abc")
REFUSED = {
    "a path": member("../../etc/passwd", b"abc"),
    "an absolute path": member("/etc/passwd", b"abc"),
    "a link": member(DIGEST, kind=tarfile.SYMTYPE, link="/etc/passwd"),
    "a hard link": member(DIGEST, kind=tarfile.LNKTYPE, link="/etc/passwd"),
    "a device": member(DIGEST, kind=tarfile.CHRTYPE),
    "a folder": member("sha256", kind=tarfile.DIRTYPE),
    "a sparse file": member(DIGEST, b"abc", kind=tarfile.GNUTYPE_SPARSE),
    "a wrong digest": member(DIGEST, b"abd"),
    "a wrong digest of a large file": member(DIGEST, b"abd" * 1_000_000),
    "cut in the content": member(digest_of(b"a" * 700), b"a" * 700)[:800],
    "cut in a large content": member(digest_of(b"a" * 700_000), b"a" * 700_000)[:600_000],
    "cut in the header": member(DIGEST, b"abc")[:100],
    "without an end": member(DIGEST, b"abc"),
    "nothing": b"",
    "not a tar": b"<html>" * 1000,
    "gzip": gzip.compress(pack([b"abc"]) * 50),
    "a bad checksum": b"X" + member(DIGEST, b"abc")[1:],
    "a huge extended header": member("x", b"1 a=b\n" * 20_000, kind=tarfile.XHDTYPE),
    "an unreadable extended header": member("x", b"999 path=x\n", kind=tarfile.XHDTYPE) + member(DIGEST, b"abc"),
    "a negative size": member("x", b"11 size=-5\n", kind=tarfile.XHDTYPE) + member(DIGEST, b"abc"),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
async def test_what_is_not_a_pack_is_refused(blobs: DirectoryBlobs, body: bytes, tmp_path: Path) -> None:
    good = member(digest_of(b"good"), b"good")
    with pytest.raises(Invalid):
        await unpack(blobs, "a", pieces(good + body), LIMIT)
    await nothing_incoming(tmp_path)
    kept = {p.read_bytes() for p in (tmp_path / "blobs" / "a").rglob("*") if p.is_file()}
    assert kept <= {b"good", b"abc"}


async def test_compression_is_refused_with_the_remedy(blobs: DirectoryBlobs) -> None:
    with pytest.raises(Invalid, match="without compression"):
        await unpack(blobs, "a", pieces(gzip.compress(os.urandom(2000))), LIMIT)


async def test_a_pack_beyond_the_limit_is_refused(blobs: DirectoryBlobs) -> None:
    with pytest.raises(TooLarge):
        await unpack(blobs, "a", pieces(pack([b"x" * 100_000])), 50_000)
    with pytest.raises(TooLarge):  # padding counts too
        await unpack(blobs, "a", pieces(pack([b"x"]) + bytes(1_000_000)), 50_000)


async def test_an_archive_is_a_tar_of_the_tree(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    large, long = os.urandom(700_000), "d/" * 100 + "é" * 60
    files = [TreeFile(path="run.sh", mode=0o755, size=3, digest=DIGEST), TreeFile(path="link", link="run.sh")]
    files += [TreeFile(path=long, size=len(large), digest=digest_of(large))]
    await unpack(blobs, "a", pieces(pack([b"abc", large])), LIMIT)
    body = b"".join([piece async for piece in archive(blobs, "a", Tree(files=files), 1_700_000_000)])
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        assert tar.getnames() == ["run.sh", "link", long]
        assert tar.getmember("run.sh").mode == 0o755
        assert tar.getmember("link").linkname == "run.sh"
        content = tar.extractfile(long)
        assert content is not None
        assert content.read() == large


async def test_what_a_sink_takes_a_source_gives(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"result")
    sink = TreeSink(blobs, "a")
    await sink.add("out/result", tmp_path / "out", 0o4755)
    await sink.add("out/again", tmp_path / "out", 0o600)
    await sink.add_link("latest", "out/result")
    digest, count, size = await sink.finish()
    assert (count, size) == (3, 12)
    source = await TreeSource.load(blobs, "a", digest)
    by_path = {file.path: file for file in source.files}
    assert by_path["out/result"].mode == 0o755
    assert source.path_of(by_path["out/result"]).read_bytes() == b"result"
    with pytest.raises(Invalid):
        source.path_of(by_path["latest"])
    with pytest.raises(NotFound):
        TreeSource(blobs, "b", Tree()).path_of(by_path["out/result"])


async def test_a_sink_leaves_out_links_that_lead_out_together(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    sink = TreeSink(blobs, "a")
    await sink.add_link("here", ".")
    await sink.add_link("up", "here/..")
    digest, count, _ = await sink.finish()
    assert count == 1
    assert [file.path for file in (await blobs.get_tree("a", digest)).files] == ["here"]
    assert sink.left_out == ["up was not kept: through other links it leads outside the job's folder."]
    with pytest.raises(ValueError, match="leads outside"):
        Tree(files=[TreeFile(path="here", link="."), TreeFile(path="up", link="here/..")])


async def test_a_sink_takes_nothing_from_outside(blobs: DirectoryBlobs, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    (tmp_path / "l").symlink_to("f")
    sink = TreeSink(blobs, "a")
    for path in ("../x", "/x", "a//b", "", "a/./b", "x\0", os.fsdecode(b"caf\xe9")):
        with pytest.raises(Invalid):
            await sink.add(path, tmp_path / "f", 0o644)
        with pytest.raises(Invalid):
            await sink.add_link(path, "f")
    for target in ("/etc/passwd", "../up", ""):
        with pytest.raises(Invalid):
            await sink.add_link("l", target)
    with pytest.raises(Invalid):
        await sink.add("l", tmp_path / "l", 0o644)
    await sink.add("d", tmp_path / "f", 0o644)
    await sink.add("d/e", tmp_path / "f", 0o644)
    with pytest.raises(Invalid, match="not a folder"):
        await sink.finish()
