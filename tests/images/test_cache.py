"""The cache: one unpacking for many, whole or not at all, and never less than is in use."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest

from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.images.archives import PackedImage, find_image, read_archive
from isthmus.images.cache import CacheSettings, ImageCache, UnpackedImage
from isthmus.images.layers import Limits
from isthmus.testing.image_archives import HERE, busybox_layer, docker_archive, layer, member, oci_archive

pytestmark = [pytest.mark.anyio, pytest.mark.real]
Made = Callable[..., PackedImage]
SHELL = layer(member("bin/sh", b"#!", mode=0o755))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    def make(*layers: bytes, docker: bool = False) -> PackedImage:
        content = docker_archive([SHELL, *layers]) if docker else oci_archive([SHELL, *layers], ["A=1"])
        path = tmp_path / f"{hash(content)}.tar"
        path.write_bytes(content)
        return find_image(read_archive(path), HERE)

    return make


@pytest.fixture
def used() -> set[str]:
    return set()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def cache(folder: Path, used: set[str]) -> ImageCache:
    return ImageCache(CacheSettings(folder), lambda: used)


def use(cache: ImageCache, image: PackedImage, name: str = "x") -> AbstractAsyncContextManager[UnpackedImage]:
    async def fetch() -> PackedImage:
        return image

    return cache.use(image.digest, name, fetch)


def staged(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "staging"))


@pytest.mark.parametrize("docker", [False, True])
async def test_an_image_is_unpacked_and_found_again(cache: ImageCache, folder: Path, made: Made, docker: bool) -> None:
    image = made(layer(member("f", b"content")), docker=docker)
    async with use(cache, image, "x.tar") as found:
        assert (found.root / "f").read_bytes() == b"content"
        assert found.env == ({} if docker else {"A": "1"})
        assert (found.root / "etc/resolv.conf").is_file()
    (found.root / "mark").touch()
    other = ImageCache(CacheSettings(folder), set)
    async with use(other, image, "x.tar") as again:
        assert (again.root / "mark").exists()
    assert [entry.digest for entry in cache.list()] == [image.digest]
    assert staged(folder) == []


async def test_many_at_once_unpack_it_once(cache: ImageCache, folder: Path, made: Made) -> None:
    image = made(busybox_layer())
    other = ImageCache(CacheSettings(folder), set)  # as another process would
    inodes = set()

    async def one(who: ImageCache) -> None:
        async with use(who, image, "x") as found:
            inodes.add((found.root / "bin/busybox").stat().st_ino)

    await asyncio.gather(*(one(who) for who in (cache, other) for _ in range(20)))
    assert len(inodes) == 1
    assert len(threading.enumerate()) < 20
    assert staged(folder) == []


@pytest.mark.parametrize("at", ["images:unpacked", "images:ready", "images:removing"])
async def test_a_kill_leaves_it_whole_or_not_at_all(folder: Path, made: Made, tmp_path: Path, at: str) -> None:
    image = made(layer(member("f", b"content")))
    source = image.layers[0].piece.path
    script = f"""
import asyncio
from pathlib import Path
from isthmus.images.archives import find_image, read_archive
from isthmus.images.cache import CacheSettings, ImageCache
async def main():
    cache = ImageCache(CacheSettings(Path({str(folder)!r})), set)
    image = find_image(read_archive(Path({str(source)!r})), {HERE!r})
    async def fetch():
        return image
    async with cache.use(image.digest, "x", fetch):
        pass
    cache.remove(image.digest)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "ISTHMUS_CRASH_AT": at}, check=False)
    assert done.returncode == -9
    cache = ImageCache(CacheSettings(folder), set)
    assert bool(cache.list()) == (at == "images:ready")
    async with use(cache, image, "x") as found:
        assert (found.root / "f").read_bytes() == b"content"
    async with use(cache, made(layer(member("g")))):
        pass
    assert staged(folder) == []


async def test_what_was_not_used_for_longest_goes_and_what_is_in_use_stays(
    folder: Path, made: Made, used: set[str]
) -> None:
    cache = ImageCache(CacheSettings(folder, max_bytes=2500), lambda: used)
    images = [made(layer(member("f", bytes([number]) * 1000))) for number in range(5)]
    for number, image in enumerate(images[:2]):
        async with use(cache, image, "x"):
            pass
        os.utime(folder / "roots" / image.digest[7:] / "image.json", (number, number))
    used.add(images[0].digest)
    async with use(cache, images[2], "x"):
        assert {found.digest for found in cache.list()} == {images[0].digest, images[2].digest}
        assert not cache.remove(images[0].digest)
        async with use(cache, images[3], "x"):  # the third is in use by the block around
            assert {found.digest for found in cache.list()} == {images[n].digest for n in (0, 2, 3)}
    used.clear()
    async with use(cache, images[4], "x"):
        pass
    assert images[4].digest in {found.digest for found in cache.list()}
    assert len(cache.list()) == 2


async def test_bad_images_leave_nothing(folder: Path, made: Made, tmp_path: Path) -> None:
    cache = ImageCache(CacheSettings(folder, limits=Limits(files=50)), set)
    many = made(layer(*(member(str(number)) for number in range(60))))
    with pytest.raises(EngineRefused, match="layer 2 of 2 cannot be used: the image has more than 50 files"):
        async with use(cache, many, "many.tar"):
            pass
    good = made(layer(member("f", b"content")))
    path = good.layers[1].piece.path
    content = bytearray(path.read_bytes())
    content[good.layers[1].piece.offset + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(EngineRefused, match="layer 2 of 2"):
        async with use(cache, good, "x"):
            pass
    bare = tmp_path / "bare.tar"
    bare.write_bytes(oci_archive([layer(member("f"))]))
    with pytest.raises(EngineRefused, match="no /bin/sh"):
        async with use(cache, find_image(read_archive(bare), HERE), "bare.tar"):
            pass
    assert (staged(folder), cache.list()) == ([], [])


async def test_no_image_takes_more_than_all_may_nor_the_last_of_the_disk(
    folder: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = made(layer(member("f", bytes(5000))))
    with pytest.raises(EngineRefused, match="more than 4000 bytes"):
        async with use(ImageCache(CacheSettings(folder, max_bytes=4000), set), image):
            pass
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4000))
    with pytest.raises(SiteUnavailable, match="no space left"):
        async with use(ImageCache(CacheSettings(folder), set), image):
            pass
    assert staged(folder) == []


async def test_a_folder_that_cannot_be_written_is_the_sites_trouble(made: Made, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = ImageCache(CacheSettings(tmp_path / "file" / "images"), set)
    with pytest.raises(SiteUnavailable, match="tried again later"):
        async with use(cache, made(), "x"):
            pass


async def test_what_the_user_of_an_image_raises_is_not_changed(cache: ImageCache, made: Made) -> None:
    with pytest.raises(FileExistsError):
        async with use(cache, made(), "x"):
            raise FileExistsError
