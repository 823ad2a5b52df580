"""Accounts: a registry with accounts gives images to those who have one, and the cache gives them to nobody else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from isthmus.errors import EngineRefused
from isthmus.images.cache import CacheSettings, ImageCache
from isthmus.images.layer_fetching import ImageFetcher, forget_layers
from isthmus.images.logins import RegistryLogin
from isthmus.images.references import RegistryReference
from isthmus.images.registries import RegistryClient, trusting
from isthmus.images.resolving import ImageFinder
from isthmus.lab.registry.daemon import RegistryLab
from isthmus.lab.registry.layout import USER
from isthmus.lab.registry.seeding import push
from isthmus.testing.image_archives import HERE, layer, member, oci_archive, oci_blobs

from .served import Answer, FakeRegistry

pytestmark = [pytest.mark.anyio, pytest.mark.real]
LAYERS = [layer(member("bin/sh", b"#!", mode=0o755)), layer(member("f", b"secret of A"))]
BLOBS, MANIFEST = oci_blobs(LAYERS)
DIGEST = str(MANIFEST["digest"])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryLab]:
    made = RegistryLab(tmp_path_factory.mktemp("lab") / "registry")
    made.up()
    made.up()  # again, with nothing to do
    with made.client() as client:
        parts = {digest: content for digest, content in BLOBS.items() if digest != DIGEST}
        push(client, "a/tool", "1", parts, BLOBS[DIGEST])
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [MANIFEST]}
        push(client, "a/tool", "many", {}, json.dumps(index).encode())
    assert made.status().running
    yield made
    made.down(erase=True)
    assert not made.status().running
    assert not made.place.root.exists()


@pytest.fixture
async def client(lab: RegistryLab) -> AsyncIterator[RegistryClient]:
    made = RegistryClient(trusting(lab.place.authority.read_text()))
    yield made
    await made.close()


@pytest.fixture
def cache(tmp_path: Path) -> ImageCache:
    return ImageCache(CacheSettings(tmp_path / "images"), set)


@pytest.fixture
def finder(client: RegistryClient, cache: ImageCache) -> ImageFinder:
    return ImageFinder(cache, client, HERE)


def login_of(lab: RegistryLab, owner: str = "a", password: str | None = None) -> RegistryLogin:
    return RegistryLogin(owner, lab.place.host, USER, password or lab.place.password.read_text().strip())


async def content(finder: ImageFinder, name: str, tenant: str, login: RegistryLogin | None = None) -> str:
    async with finder.use(name, {}, tenant, login) as found:
        return (found.root / "f").read_text()


async def test_the_account_opens_what_is_closed_and_a_wrong_one_does_not(lab: RegistryLab, finder: ImageFinder) -> None:
    name = f"{lab.place.host}/a/tool:1"
    with pytest.raises(EngineRefused, match="isthmus registry login"):
        await content(finder, name, "a")
    with pytest.raises(EngineRefused, match=f"does not give a/tool to {USER}"):
        await content(finder, name, "a", login_of(lab, password="wrong"))
    login = login_of(lab)
    assert await content(finder, name, "a", login) == "secret of A"
    assert login.password not in repr(login)
    with pytest.raises(EngineRefused, match=f"has no a/tool:2, or not for {USER}"):
        await content(finder, f"{lab.place.host}/a/tool:2", "a", login)


async def test_knowing_a_digest_gives_nobody_what_the_registry_does_not(
    lab: RegistryLab, finder: ImageFinder, cache: ImageCache, tmp_path: Path
) -> None:
    name = f"{lab.place.host}/a/tool@{DIGEST}"
    assert await content(finder, name, "a", login_of(lab)) == "secret of A"
    for login in (None, login_of(lab, "b", "wrong")):
        with pytest.raises(EngineRefused):
            await content(finder, name, "b", login)

    # A registry of B's own that names the layers of A's image, which B does not have.
    def lying(path: str, headers: dict[str, str]) -> Answer:
        if "/manifests/" in path:
            return 200, {}, BLOBS[DIGEST]
        wanted = path.rpartition("/")[2]
        return (200, {}, BLOBS[wanted]) if wanted == json.loads(BLOBS[DIGEST])["config"]["digest"] else (404, {}, b"")

    async with FakeRegistry(tmp_path / "tls", lying) as fake:
        asking = RegistryClient(fake.trust)
        with pytest.raises(EngineRefused):
            await content(ImageFinder(cache, asking, HERE), f"{fake.host}/b/tool:1", "b")
        await asking.close()
    # An archive of B's own is B's own, though it is the same image.
    archive = tmp_path / "own.tar"
    archive.write_bytes(oci_archive(LAYERS))
    async with finder.use("oci-archive:own.tar", {"own.tar": lambda: archive}, "b") as found:
        assert found.digest == DIGEST
    assert [kept.private for kept in cache.kept()] == [True, True]  # each has its own


async def test_an_image_of_an_index_is_known_again_without_asking(
    lab: RegistryLab, finder: ImageFinder, client: RegistryClient
) -> None:
    login = login_of(lab)
    wanted = RegistryReference(lab.place.host, "a/tool", "many")
    index = await client.signed_in(login).resolve(wanted)
    assert index != DIGEST
    name = str(wanted.at(index))
    assert await content(finder, name, "a", login) == "secret of A"
    await client.close()
    assert await content(finder, name, "a", login) == "secret of A"  # from here: nobody can be asked any more


async def test_credentials_go_to_the_registry_that_they_are_for_and_to_nobody_else(tmp_path: Path) -> None:
    login = RegistryLogin("a", "example.org", "ada", "hunter2")

    def asking(path: str, headers: dict[str, str]) -> Answer:
        return 401, {"www-authenticate": f'Bearer realm="https://{fake.host}/token",service="x"'}, b"{}"

    async with FakeRegistry(tmp_path / "tls", asking) as fake:
        client = RegistryClient(fake.trust).signed_in(login)
        with pytest.raises(EngineRefused):
            await client.resolve(RegistryReference(fake.host, "b/tool", "1"))
        await client.close()
        assert all("authorization" not in headers for _, headers in fake.asked)


async def test_what_tenants_used_is_theirs_to_remove(lab: RegistryLab, finder: ImageFinder, cache: ImageCache) -> None:
    name, login = f"{lab.place.host}/a/tool:1", login_of(lab, "shared")
    await content(finder, name, "a", login)
    await content(finder, name, "b", login)
    (kept,) = cache.kept()
    assert (set(kept.tenants), kept.private, kept.image.digest) == ({"a", "b"}, True, DIGEST)
    assert cache.leave(kept.image.key, "a")
    assert [kept.tenants for kept in cache.kept()] == [{"b"}]
    assert cache.leave(kept.image.key, "b")
    assert cache.kept() == []


async def test_layers_that_an_account_opened_are_found_by_nobody_else(
    lab: RegistryLab, client: RegistryClient, tmp_path: Path
) -> None:
    """For sites that unpack images themselves: the right to one is shown to its registry, by everybody."""
    blobs, name = tmp_path / "layers", f"{lab.place.host}/a/tool@{DIGEST}"
    fetcher = ImageFetcher(blobs, client, HERE)
    found = await fetcher.find(name, {}, login_of(lab))
    image = await found.fetch()
    assert (found.digest, found.owner) == (DIGEST, "a")
    assert all(part.piece.path.parent.parent == blobs for part in image.layers)
    for login in (None, login_of(lab, "b", "wrong")):
        with pytest.raises(EngineRefused):
            await fetcher.find(name, {}, login)

    def lying(path: str, headers: dict[str, str]) -> Answer:
        wanted = path.rpartition("/")[2]
        known = DIGEST if "/manifests/" in path else wanted
        return (
            (200, {}, BLOBS[known])
            if known in (DIGEST, json.loads(BLOBS[DIGEST])["config"]["digest"])
            else (404, {}, b"")
        )

    async with FakeRegistry(tmp_path / "tls", lying) as fake:
        asking = RegistryClient(fake.trust)
        named = await ImageFetcher(blobs, asking, HERE).find(f"{fake.host}/b/tool:1", {})
        with pytest.raises(EngineRefused):
            await named.fetch()
        await asking.close()
    forget_layers(blobs, 0)
    assert not any(part.piece.path.exists() for part in image.layers)
