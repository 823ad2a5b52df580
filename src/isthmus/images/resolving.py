"""From what a job calls its image to the image, unpacked here: the one door for engines.

An image among the job's files is read where the platform keeps it; one of a registry is fetched. Either way it is known
by its digest, and one that is here already is neither read nor fetched again.

Not everybody may have every image. One that was fetched without an account is for all; one that was fetched with an
account, or sent along by a tenant, is kept apart and given to nobody else (`owner`), though he may know its digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .archives import PackedImage
from .cache import ImageCache, UnpackedImage
from .layer_fetching import Files, fetch_image, read_name, read_sent
from .logins import RegistryLogin
from .references import FileReference, RegistryReference
from .registries import RegistryClient


class ImageFinder:
    """Finds images for machines of one architecture."""

    def __init__(self, cache: ImageCache, registries: RegistryClient, architecture: str) -> None:
        self._cache, self._registries, self._architecture = cache, registries, architecture

    @asynccontextmanager
    async def use(
        self, name: str, files: Files, tenant: str = "", login: RegistryLogin | None = None
    ) -> AsyncIterator[UnpackedImage]:
        """The image that a job of a tenant names, unpacked; it stays at least until the end of the block.

        Raises EngineRefused for an image that there is not or that cannot be used, SiteUnavailable for what may work
        later.
        """
        wanted = read_name(name)
        if isinstance(wanted, FileReference):
            used = self._sent_along(wanted, files, tenant)
        else:
            used = self._remote(wanted, tenant, login if login and login.registry == wanted.registry else None)
        async with used as found:
            yield found

    @asynccontextmanager
    async def _sent_along(self, wanted: FileReference, files: Files, tenant: str) -> AsyncIterator[UnpackedImage]:
        image = await asyncio.to_thread(read_sent, wanted, files, self._architecture)

        async def fetch() -> PackedImage:
            return image

        owner = f"tenant {tenant}" if tenant else ""
        async with self._cache.use(image.digest, str(wanted), fetch, owner=owner, tenant=tenant) as found:
            yield found

    @asynccontextmanager
    async def _remote(
        self, wanted: RegistryReference, tenant: str, login: RegistryLogin | None
    ) -> AsyncIterator[UnpackedImage]:
        registries, owner = self._registries.signed_in(login), login.owner if login else ""
        digest, manifest = self._cache.meant(wanted.digest) if wanted.digest else None, None
        if digest is not None and self._cache.has(digest):
            owner = ""  # it is for everybody
        elif digest is None or not self._cache.has(digest, owner):
            digest, manifest = await registries.manifest(wanted, self._architecture)

        async def fetch() -> PackedImage:
            found = manifest or (await registries.manifest(wanted.at(digest), self._architecture))[1]
            blobs = self._cache.blobs_of(owner)
            return await fetch_image(registries, wanted, digest, found, self._architecture, blobs)

        async with self._cache.use(digest, str(wanted), fetch, owner=owner, tenant=tenant) as found:
            if manifest is not None and wanted.digest not in (None, digest):
                await asyncio.to_thread(self._cache.note_meaning, wanted.digest, digest)
            yield found
