"""From what a job calls its image to its layers on this machine, for sites that unpack it themselves.

Unlike `resolving`, nothing is unpacked here. What is known of an image by its digest is not asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from isthmus.errors import EngineRefused, Invalid

from .archives import FilePiece, PackedImage, find_image, make_image, read_archive
from .manifests import ImageManifest, bad
from .references import FileReference, RegistryReference, parse_reference
from .registries import RegistryClient
from .resolving import Files

_MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image that there is: its digest, and how its layers come here."""

    digest: str
    fetch: Callable[[], Awaitable[PackedImage]]


class ImageFetcher:
    """Finds images for machines of one architecture, and keeps layers in a folder."""

    def __init__(self, blobs: Path, registries: RegistryClient, architecture: str) -> None:
        self._blobs, self._registries, self._architecture = blobs, registries, architecture
        self._meant: dict[str, str] = {}
        """Digests of indexes, and of the image in each that these machines run."""

    async def find(self, name: str, files: Files) -> FoundImage:
        """The image that a job names; raises EngineRefused for one that there is not, SiteUnavailable for later."""
        try:
            wanted = parse_reference(name)
        except Invalid as error:
            raise EngineRefused(error.message) from error
        if isinstance(wanted, FileReference):
            image = await asyncio.to_thread(self._read, wanted, files)
            return FoundImage(image.digest, _given(image))
        return await self._remote(wanted)

    def _read(self, wanted: FileReference, files: Files) -> PackedImage:
        if wanted.folder:
            top = f"{wanted.path}/"
            inside = {path[len(top) :]: at() for path, at in files.items() if path.startswith(top)}
            pieces = {path: FilePiece(at, 0, at.stat().st_size) for path, at in inside.items()}
        elif wanted.path in files:
            pieces = dict(read_archive(files[wanted.path]()))
        else:
            raise bad(f"{wanted.path} is not among the files sent along with the job")
        return find_image(pieces, self._architecture)

    async def _remote(self, wanted: RegistryReference) -> FoundImage:
        manifest: ImageManifest | None = None
        digest = self._meant.get(wanted.digest) if wanted.digest else None
        if digest is None:
            digest, manifest = await self._registries.manifest(wanted, self._architecture)
            if wanted.digest:
                if len(self._meant) >= _MOST_KNOWN:
                    self._meant.clear()
                self._meant[wanted.digest] = digest

        async def fetch() -> PackedImage:
            found = manifest or (await self._registries.manifest(wanted.at(digest), self._architecture))[1]
            return await self._fetch(wanted, digest, found)

        return FoundImage(digest, fetch)

    async def _fetch(self, wanted: RegistryReference, digest: str, manifest: ImageManifest) -> PackedImage:
        config = await self._registries.config(wanted, manifest.config)
        # What does not fit these machines is refused before anything is fetched.
        make_image(digest, config, [(FilePiece(Path(), 0, 0), None)] * len(manifest.layers), self._architecture)
        self._blobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        layers: list[tuple[FilePiece, str | None]] = []
        for layer in manifest.layers:
            path = await self._registries.fetch(wanted, layer, self._blobs)
            layers.append((FilePiece(path, 0, layer.size), layer.digest))
        return make_image(digest, config, layers, self._architecture)


def forget_layers(blobs: Path, most: int) -> None:
    """Remove layers that were not fetched for longest, until the rest is no more than this. Work for a thread."""
    if not blobs.is_dir():
        return
    found = sorted((entry.stat().st_mtime, entry.stat().st_size, entry) for entry in blobs.iterdir())
    total = sum(size for _, size, _ in found)
    for _, size, path in found:
        if total <= most:
            return
        path.unlink(missing_ok=True)
        total -= size


def _given(image: PackedImage) -> Callable[[], Awaitable[PackedImage]]:
    async def fetch() -> PackedImage:
        return image

    return fetch
