"""From what a job calls its image to its layers on this machine; `resolving` unpacks them here, Slurm sites there.

An image among the job's files is read where the platform keeps it. Layers of one in a registry are fetched into a
folder: those that somebody's account opened into one of their own, so that nobody else finds them by their digest.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from isthmus.errors import EngineRefused, Invalid

from .archives import FilePiece, PackedImage, find_image, make_image, read_archive
from .logins import RegistryLogin
from .manifests import ImageManifest, bad
from .references import FileReference, RegistryReference, parse_reference
from .registries import RegistryClient

Files = Mapping[str, Callable[[], Path]]
"""Files sent along with a job: their paths, and where their contents lie."""
_MOST_KNOWN = 10_000


def read_name(name: str) -> FileReference | RegistryReference:
    """What a job names; raises EngineRefused."""
    try:
        return parse_reference(name)
    except Invalid as error:
        raise EngineRefused(error.message) from error


def read_sent(wanted: FileReference, files: Files, architecture: str) -> PackedImage:
    """An image among the files sent along. Work for a thread."""
    if wanted.folder:
        top = f"{wanted.path}/"
        inside = {path[len(top) :]: at() for path, at in files.items() if path.startswith(top)}
        pieces = {path: FilePiece(at, 0, at.stat().st_size) for path, at in inside.items()}
    elif wanted.path in files:
        pieces = dict(read_archive(files[wanted.path]()))
    else:
        raise bad(f"{wanted.path} is not among the files sent along with the job")
    return find_image(pieces, architecture)


async def fetch_image(
    registries: RegistryClient,
    wanted: RegistryReference,
    digest: str,
    manifest: ImageManifest,
    architecture: str,
    blobs: Path,
) -> PackedImage:
    """An image of a registry, its layers in a folder."""
    config = await registries.config(wanted, manifest.config)
    # What does not fit these machines is refused before anything is fetched.
    make_image(digest, config, [(FilePiece(Path(), 0, 0), None)] * len(manifest.layers), architecture)
    layers: list[tuple[FilePiece, str | None]] = []
    for layer in manifest.layers:
        path = await registries.fetch(wanted, layer, blobs)
        layers.append((FilePiece(path, 0, layer.size), layer.digest))
    return make_image(digest, config, layers, architecture)


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image that there is: its digest, and how its layers come here."""

    digest: str
    fetch: Callable[[], Awaitable[PackedImage]]
    owner: str = ""
    """Whose account opened it; empty: it is for everybody."""


class ImageFetcher:
    """Finds images for machines of one architecture, and keeps layers in a folder."""

    def __init__(self, blobs: Path, registries: RegistryClient, architecture: str) -> None:
        self._blobs, self._registries, self._architecture = blobs, registries, architecture
        self._meant: dict[tuple[str, str], str] = {}
        """Digests that a registry gave to an owner, and of the image in each that these machines run."""

    async def find(self, name: str, files: Files, login: RegistryLogin | None = None) -> FoundImage:
        """The image that a job names; raises EngineRefused for one that there is not, or not for this account."""
        wanted = read_name(name)
        if isinstance(wanted, FileReference):
            image = await asyncio.to_thread(read_sent, wanted, files, self._architecture)
            return FoundImage(image.digest, _given(image))
        return await self._remote(wanted, login if login and login.registry == wanted.registry else None)

    async def _remote(self, wanted: RegistryReference, login: RegistryLogin | None) -> FoundImage:
        registries, owner = self._registries.signed_in(login), login.owner if login else ""
        manifest: ImageManifest | None = None
        digest = self._meant.get((owner, str(wanted))) if wanted.digest else None
        if digest is None:  # whoever has not shown yet that the registry gives it to them is not given ours
            digest, manifest = await registries.manifest(wanted, self._architecture)
            if wanted.digest:
                if len(self._meant) >= _MOST_KNOWN:
                    self._meant.clear()
                self._meant[owner, str(wanted)] = digest

        async def fetch() -> PackedImage:
            found = manifest or (await registries.manifest(wanted.at(digest), self._architecture))[1]
            blobs = self._blobs / hashlib.sha256(owner.encode()).hexdigest()[:32] if owner else self._blobs
            blobs.mkdir(mode=0o700, parents=True, exist_ok=True)
            return await fetch_image(registries, wanted, digest, found, self._architecture, blobs)

        return FoundImage(digest, fetch, owner)


def forget_layers(blobs: Path, most: int) -> None:
    """Remove layers that were not fetched for longest, until the rest is no more than this. Work for a thread."""
    found = sorted(
        (entry.stat().st_mtime, entry.stat().st_size, entry) for entry in blobs.rglob("*") if entry.is_file()
    )
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
