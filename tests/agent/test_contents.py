"""Contents arrive whole or not at all, go on where they stopped, and make room for others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus.agent.contents import ContentStore, KeptSource
from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.resources.work.trees import TreeFile, digest_of

pytestmark = pytest.mark.anyio


class Given:
    """Pieces, the last of which may be that the connection breaks."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = list(pieces)

    async def receive(self) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return piece


def file(data: bytes) -> TreeFile:
    return TreeFile(path="f", digest=digest_of(data), size=len(data))


async def test_a_content_goes_on_where_it_stopped(tmp_path: Path) -> None:
    store, wanted = ContentStore(tmp_path, 10**6), file(b"0123456789")
    assert wanted.digest is not None
    assert store.missing([wanted]) == {wanted.digest: 0}
    with pytest.raises(SiteUnavailable):
        await store.put(wanted.digest, 10, 0, Given(b"0123", SiteUnavailable("gone")))
    assert store.missing([wanted]) == {wanted.digest: 4}
    with pytest.raises(SiteUnavailable, match="4 are here"):
        await store.put(wanted.digest, 10, 7, Given(b"789"))
    await store.put(wanted.digest, 10, 4, Given(b"456", b"789"))
    assert store.missing([wanted]) == {}
    assert KeptSource(store, [wanted]).path_of(wanted).read_bytes() == b"0123456789"
    await store.put(wanted.digest, 10, 0, Given(b"0123456789"))  # sent again though it is here


async def test_what_is_not_what_it_is_said_to_be_is_thrown_away(tmp_path: Path) -> None:
    store, wanted = ContentStore(tmp_path, 10**6), file(b"0123456789")
    assert wanted.digest is not None
    with pytest.raises(SiteUnavailable, match="as it was sent"):
        await store.put(wanted.digest, 10, 0, Given(b"xxxxxxxxxx"))
    assert store.missing([wanted]) == {wanted.digest: 0}
    with pytest.raises(EngineRefused, match="more than the 10 bytes"):
        await store.put(wanted.digest, 10, 0, Given(b"0123456789", b"!"))
    await store.put(wanted.digest, 10, 0, Given(b"0123456789"))  # from the beginning, whatever lies there
    assert store.missing([wanted]) == {}


async def test_what_was_not_used_for_longest_goes_first_and_nothing_that_is_used(tmp_path: Path) -> None:
    store = ContentStore(tmp_path, 25)
    files = [file(bytes([65 + n]) * 10) for n in range(4)]
    for age, one in enumerate(files):
        assert one.digest is not None
        await store.put(one.digest, 10, 0, Given(bytes([65 + age]) * 10))
        os.utime(store.path(one.digest), (age, age))
    with store.using([files[0]]):
        store.prune()
    assert [one.digest in store.missing(files) for one in files] == [False, True, True, False]
