"""Registries: the real one, and one that lies, breaks off and leads astray."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.images.cache import CacheSettings, ImageCache
from isthmus.images.registries import RegistryClient
from isthmus.images.resolving import ImageFinder
from isthmus.testing.image_archives import HERE, layer, member, oci_blobs

from .served import Answer, FakeRegistry, RealRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.real]
LAYERS = [layer(member("bin/sh", b"#!", mode=0o755)), layer(member("f", bytes(range(256)) * 4000))]
BLOBS, MANIFEST = oci_blobs(LAYERS, ["A=1"])
LONGEST = max(BLOBS, key=lambda digest: len(BLOBS[digest]))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    made = RealRegistry(tmp_path_factory.mktemp("registry") / "registry")
    yield made
    made.close()


class Found:
    """A finder, and what it asked for."""

    def __init__(self, folder: Path, trust: Any) -> None:
        self.cache = ImageCache(CacheSettings(folder), set)
        self.client = RegistryClient(trust)
        self.finder = ImageFinder(self.cache, self.client, HERE)

    async def content(self, name: str) -> tuple[str, int]:
        async with self.finder.use(name, {}) as found:
            return found.digest, (found.root / "f").stat().st_size


async def found(folder: Path, trust: Any) -> AsyncIterator[Found]:
    made = Found(folder, trust)
    yield made
    await made.client.close()


@pytest.fixture
async def real(registry: RealRegistry, tmp_path: Path) -> AsyncIterator[Found]:
    async for made in found(tmp_path / "images", registry.trust):
        yield made


def serving(path: str, headers: dict[str, str]) -> Answer:
    """A registry as it should be."""
    wanted = path.rpartition("/")[2]
    content = BLOBS[MANIFEST["digest"] if "/manifests/" in path else wanted]
    if (begin := headers.get("range")) is not None:
        return 206, {}, content[int(begin[6:-1]) :]
    return 200, {}, content


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry(tmp_path / "tls", serving) as made:
        yield made


@pytest.fixture
async def faked(fake: FakeRegistry, tmp_path: Path) -> AsyncIterator[Found]:
    async for made in found(tmp_path / "images", fake.trust):
        yield made


async def test_an_image_of_a_real_registry(registry: RealRegistry, real: Found) -> None:
    registry.push("lab/tiny", "1", BLOBS, MANIFEST)
    whole = (MANIFEST["digest"], 1_024_000)
    assert await real.content(f"{registry.host}/lab/tiny:1") == whole
    assert await real.content(f"{registry.host}/lab/tiny@{MANIFEST['digest']}") == whole
    with pytest.raises(EngineRefused, match=r"has no lab/tiny:2"):
        await real.content(f"{registry.host}/lab/tiny:2")


async def test_a_tag_that_moved_gives_the_new_bytes_and_the_digest_the_old(registry: RealRegistry, real: Found) -> None:
    registry.push("lab/moving", "1", BLOBS, MANIFEST)
    await real.content(f"{registry.host}/lab/moving:1")
    blobs, manifest = oci_blobs([*LAYERS, layer(member("f", b"new"))])
    registry.push("lab/moving", "1", blobs, manifest)
    assert await real.content(f"{registry.host}/lab/moving:1") == (manifest["digest"], 3)
    assert await real.content(f"{registry.host}/lab/moving:1@{MANIFEST['digest']}") == (MANIFEST["digest"], 1_024_000)


async def test_a_certificate_that_is_not_known_is_refused(registry: RealRegistry, tmp_path: Path) -> None:
    async for made in found(tmp_path / "images", None):
        with pytest.raises(SiteUnavailable, match="certificate"):
            await made.content(f"{registry.host}/lab/tiny:1")


async def test_fifty_who_want_the_same_fetch_it_once(fake: FakeRegistry, faked: Found) -> None:
    await asyncio.gather(*(faked.content(f"{fake.host}/x:1") for _ in range(50)))
    assert len([path for path, _ in fake.asked if "/blobs/" in path]) == 3
    fake.asked.clear()
    await faked.content(f"{fake.host}/x@{MANIFEST['digest']}")
    assert fake.asked == []  # what is here by its digest needs no registry


async def test_layers_that_another_image_has_are_not_fetched_again(fake: FakeRegistry, faked: Found) -> None:
    await faked.content(f"{fake.host}/x:1")
    fake.asked.clear()
    other, manifest = oci_blobs([LAYERS[0], LAYERS[1]], ["B=2"])
    fake.answer = lambda path, _: (
        200,
        {},
        other[manifest["digest"] if "/manifests/" in path else path.rpartition("/")[2]],
    )
    await faked.content(f"{fake.host}/y:1")
    assert len(fake.asked) == 2  # the manifest and the config


async def test_what_broke_off_goes_on(fake: FakeRegistry, faked: Found) -> None:
    def breaking(path: str, headers: dict[str, str]) -> Answer:
        status, more, body = serving(path, headers)
        return status, {"content-length": str(len(body)), **more}, body[:1000] if path.endswith(LONGEST) else body

    fake.answer = breaking
    for _ in range(2):
        with pytest.raises(SiteUnavailable, match="It is asked again"):
            await faked.content(f"{fake.host}/x:1")
    fake.answer = serving
    assert (await faked.content(f"{fake.host}/x:1"))[1] == 1_024_000
    begun = [headers.get("range") for path, headers in fake.asked if path.endswith(LONGEST)]
    assert begun == [None, "bytes=1000-", "bytes=2000-"]


async def test_a_registry_that_cannot_go_on_begins_again(fake: FakeRegistry, faked: Found, tmp_path: Path) -> None:
    part = tmp_path / "images" / "blobs" / f"{LONGEST[7:]}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"rubbish")
    with pytest.raises(SiteUnavailable, match="fetched again"):  # the rest fits, the beginning does not
        await faked.content(f"{fake.host}/x:1")
    part.write_bytes(BLOBS[LONGEST][:99])
    fake.answer = lambda path, headers: serving(path, {})
    assert (await faked.content(f"{fake.host}/x:1"))[1] == 1_024_000


async def test_tokens_are_fetched_over_https_and_not_shown_to_others(fake: FakeRegistry, faked: Found) -> None:
    def guarded(path: str, headers: dict[str, str]) -> Answer:
        if path.startswith("/token"):
            return 200, {}, b'{"token": "t0ken"}'
        if path.startswith("/store"):
            return serving(path, {})
        if headers.get("authorization") != "Bearer t0ken":
            challenge = f'Bearer realm="https://{fake.host}/token",service="s",scope="repository:x:pull"'
            return 401, {"www-authenticate": challenge}, b""
        if "/blobs/" in path:
            other = fake.host.replace("localhost", "127.0.0.1")
            return 307, {"location": f"https://{other}/store/{path.rpartition('/')[2]}"}, b""
        return serving(path, {})

    fake.answer = guarded
    assert (await faked.content(f"{fake.host}/x:1"))[1] == 1_024_000
    assert any("scope=repository%3Ax%3Apull" in path and "service=s" in path for path, _ in fake.asked)
    stored = [headers for path, headers in fake.asked if path.startswith("/store")]
    assert len(stored) == 3
    assert not any("authorization" in headers for headers in stored)


async def test_a_token_that_is_a_bomb_is_not_decompressed(fake: FakeRegistry, faked: Found) -> None:
    bomb = gzip.compress(bytes(64 * 2**20))

    def guarded(path: str, _headers: dict[str, str]) -> Answer:
        if path.startswith("/token"):
            return 200, {"content-encoding": "gzip"}, bomb
        return 401, {"www-authenticate": f'Bearer realm="https://{fake.host}/token"'}, b""

    fake.answer = guarded
    tracemalloc.start()
    try:
        with pytest.raises(EngineRefused, match="without an account"):
            await faked.content(f"{fake.host}/x:1")
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


def changed(digest: str) -> Answer:
    content = bytearray(BLOBS[digest])
    content[-1] ^= 1
    return 200, {}, bytes(content)


EVIL: dict[str, tuple[str, Answer, type[Exception], str]] = {
    "other manifest": ("/manifests/", (200, {}, b'{"layers": [], "config": {}}'), EngineRefused, "cannot be used"),
    "endless manifest": ("/manifests/", (200, {}, b" " * (5 * 2**20)), EngineRefused, "more than"),
    "not json": ("/manifests/", (200, {}, b"<html>"), EngineRefused, "not JSON"),
    "away": ("/manifests/", (503, {}, b""), SiteUnavailable, "503"),
    "too many": ("/manifests/", (429, {}, b""), SiteUnavailable, "429"),
    "gone": ("/manifests/", (404, {}, b""), EngineRefused, "check its name"),
    "account": (
        "/manifests/",
        (401, {"www-authenticate": 'Basic realm="x"'}, b""),
        EngineRefused,
        "without an account",
    ),
    "plain token": (
        "/manifests/",
        (401, {"www-authenticate": 'Bearer realm="http://localhost/t"'}, b""),
        EngineRefused,
        "without an account",
    ),
    "plain redirect": (LONGEST, (307, {"location": "http://localhost/x"}, b""), SiteUnavailable, "not https"),
    "in circles": (LONGEST, (307, {"location": f"/v2/x/blobs/{LONGEST}"}, b""), SiteUnavailable, "without end"),
    "no address": (LONGEST, (307, {"location": "https://[x/"}, b""), SiteUnavailable, "asked again"),
    "changed layer": (LONGEST, changed(LONGEST), EngineRefused, "not what its digest says"),
    "long layer": (LONGEST, (200, {}, BLOBS[LONGEST] + b"more"), EngineRefused, "longer"),
    "teapot": (LONGEST, (418, {}, b""), EngineRefused, "418"),
}


@pytest.mark.parametrize("name", EVIL)
async def test_bad_registries(fake: FakeRegistry, faked: Found, name: str) -> None:
    where, answer, kind, message = EVIL[name]
    fake.answer = lambda path, headers: answer if where in path else serving(path, headers)
    with pytest.raises(kind, match=message):
        await faked.content(f"{fake.host}/x:1")
    assert len(fake.asked) < 15
    assert faked.cache.list() == []
    fake.answer = serving
    assert (await faked.content(f"{fake.host}/x:1"))[1] == 1_024_000


async def test_a_manifest_that_is_not_the_one_asked_for(fake: FakeRegistry, faked: Found) -> None:
    with pytest.raises(EngineRefused, match="another manifest"):
        await faked.content(f"{fake.host}/x@sha256:{'0' * 64}")


async def test_another_machine_is_seen_before_layers_are_fetched(fake: FakeRegistry, faked: Found) -> None:
    blobs, manifest = oci_blobs(LAYERS, architecture="sparc")
    fake.answer = lambda path, _: (
        200,
        {},
        blobs[manifest["digest"] if "/manifests/" in path else path.rpartition("/")[2]],
    )
    with pytest.raises(EngineRefused, match="made for sparc"):
        await faked.content(f"{fake.host}/x:1")
    assert len(fake.asked) == 2
    index = json.dumps({"manifests": [manifest]}).encode()
    fake.answer = lambda path, _: (200, {}, index)
    with pytest.raises(EngineRefused, match="made for sparc"):
        await faked.content(f"{fake.host}/x:1")
