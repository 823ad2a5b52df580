"""From what a job calls its image to the image, unpacked here: the one door for engines.

An image among the job's files is read where the platform keeps it; one of a registry is fetched. Either way it is known
by its digest, and one that is here already is neither read nor fetched again.

Not everybody may have every image. One that was fetched without an account is for all; one that was fetched with an
account, or sent along by a tenant, is kept apart and given to nobody else (`owner`), though he may know its digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from isthmus.errors import EngineRefused, Invalid

from .archives import FilePiece, PackedImage, find_image, make_image, read_archive
from .cache import ImageCache, UnpackedImage
from .logins import RegistryLogin
from .manifests import ImageManifest, bad
from .references import FileReference, RegistryReference, parse_reference
from .registries import RegistryClient

Files = Mapping[str, Callable[[], Path]]
"""Files sent along with a job: their paths, and where their contents lie."""


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
        try:
            wanted = parse_reference(name)
        except Invalid as error:
            raise EngineRefused(error.message) from error
        if isinstance(wanted, FileReference):
            used = self._sent_along(wanted, files, tenant)
        else:
            used = self._remote(wanted, tenant, login if login and login.registry == wanted.registry else None)
        async with used as found:
            yield found

    @asynccontextmanager
    async def _sent_along(self, wanted: FileReference, files: Files, tenant: str) -> AsyncIterator[UnpackedImage]:
        image = await asyncio.to_thread(self._read, wanted, files)

        async def fetch() -> PackedImage:
            return image

        owner = f"tenant {tenant}" if tenant else ""
        async with self._cache.use(image.digest, str(wanted), fetch, owner=owner, tenant=tenant) as found:
            yield found

    def _read(self, wanted: FileReference, files: Files) -> PackedImage:
        if wanted.folder:
            inside = {
                path[len(wanted.path) + 1 :]: at for path, at in files.items() if path.startswith(f"{wanted.path}/")
            }
            pieces = {path: _piece(at()) for path, at in inside.items()}
        elif wanted.path in files:
            pieces = dict(read_archive(files[wanted.path]()))
        else:
            raise bad(f"{wanted.path} is not among the files sent along with the job")
        return find_image(pieces, self._architecture)

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
            return await self._fetch(registries, wanted, digest, found, self._cache.blobs_of(owner))

        async with self._cache.use(digest, str(wanted), fetch, owner=owner, tenant=tenant) as found:
            if manifest is not None and wanted.digest not in (None, digest):
                await asyncio.to_thread(self._cache.note_meaning, wanted.digest, digest)
            yield found

    async def _fetch(
        self,
        registries: RegistryClient,
        wanted: RegistryReference,
        digest: str,
        manifest: ImageManifest,
        blobs: Path,
    ) -> PackedImage:
        config = await registries.config(wanted, manifest.config)
        make_image(digest, config, [(FilePiece(Path(), 0, 0), None)] * len(manifest.layers), self._architecture)
        layers: list[tuple[FilePiece, str | None]] = []
        for layer in manifest.layers:
            path = await registries.fetch(wanted, layer, blobs)
            layers.append((FilePiece(path, 0, layer.size), layer.digest))
        return make_image(digest, config, layers, self._architecture)


def _piece(path: Path) -> FilePiece:
    return FilePiece(path, 0, path.stat().st_size)
