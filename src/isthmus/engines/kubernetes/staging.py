"""Files on their way into a pod and out of it, as tar archives through the API server.

What goes in is packed on this side first and kept until it is in the pod, so that a control plane that is killed goes
on with it. What comes out was made by an untrusted job: only what was asked for is taken, only plain files and links
that stay inside, and nothing is ever unpacked to where a path says.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import secrets
import tarfile
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from isthmus._kit.quantities import format_bytes
from isthmus.engines.base import FileSink, FileSource
from isthmus.engines.collecting import matching
from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.kubernetes.client import KubernetesClient
from isthmus.resources.work.trees import check_link

from . import pods, wrapping
from .executing import execute

BLOCK = 64 * 2**10


class StagedArchives:
    """The archives of one site."""

    def __init__(self, client: KubernetesClient, folder: Path, max_bytes: int) -> None:
        self._client, self._folder, self._max_bytes = client, folder, max_bytes

    async def open(self) -> None:
        """Make the folder."""
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)

    def archive(self, run_id: str) -> Path:
        """Where the files of a run wait."""
        return self._folder / f"{run_id}.tar"

    async def pack(self, run_id: str, files: FileSource) -> None:
        """Keep the files of a run until they are in its pod."""
        if self.archive(run_id).exists():
            return
        try:
            await asyncio.to_thread(_pack, self.archive(run_id), files)
        except OSError as error:  # the disk is full, or another control plane is done with the run
            raise SiteUnavailable(f"The files of run {run_id} could not be packed: {error}.") from error

    async def send(self, run_id: str, pod: str) -> None:
        """Bring the archive into the waiting pod, and let the program begin."""
        path = self.archive(run_id)
        size = path.stat().st_size
        await execute(self._client, pod, pods.STAGE, wrapping.unpack(size), send=_parts(path))

    async def drop(self, run_id: str) -> None:
        """The files are in the pod, or will never be."""
        await asyncio.to_thread(self._drop, run_id)

    def _drop(self, run_id: str) -> None:
        for path in (self.archive(run_id), *self._folder.glob(f"{run_id}.*.new")):
            path.unlink(missing_ok=True)

    async def collect(self, pod: str, patterns: Sequence[str], sink: FileSink) -> list[str]:
        """Bring back what matches; a sentence for each match that was not kept."""
        names = await self._names(pod)
        wanted = set(await asyncio.to_thread(matching, names, patterns))
        if not wanted:
            return []
        asked = b"".join(f"./{name}".encode("utf-8", "surrogateescape") + b"\0" for name in sorted(wanted))
        with tempfile.TemporaryFile(dir=self._folder) as file:
            await self._receive(pod, asked, file)
            file.seek(0)
            return await _keep(file, wanted, sink)

    async def _names(self, pod: str) -> list[str]:
        listed = bytearray()

        async def take(part: bytes) -> None:
            listed.extend(part)
            if len(listed) > 64 * 2**20:
                raise EngineRefused("The job left too many files to be listed; keep fewer, or pack them.")

        await execute(self._client, pod, pods.FILES, wrapping.find(), take=take)
        return [name.decode("utf-8", "surrogateescape").removeprefix("./") for name in listed.split(b"\0") if name]

    async def _receive(self, pod: str, asked: bytes, file: io.BufferedRandom) -> None:
        size = 0

        async def take(part: bytes) -> None:
            nonlocal size
            size += len(part)
            if size > self._max_bytes:
                limit = format_bytes(self._max_bytes)
                raise EngineRefused(f"The outputs are larger than the site's limit of {limit}B.")
            await asyncio.to_thread(file.write, part)

        async def send() -> AsyncIterator[bytes]:
            for begin in range(0, len(asked), BLOCK):
                yield asked[begin : begin + BLOCK]

        await execute(self._client, pod, pods.FILES, wrapping.pack(len(asked)), send=send(), take=take)


async def _keep(file: io.BufferedRandom, wanted: set[str], sink: FileSink) -> list[str]:
    """Hand on what is in an archive; several archives may follow each other."""
    skipped: list[str] = []
    missing = set(wanted)
    try:
        archive = await asyncio.to_thread(tarfile.open, fileobj=file, mode="r:", ignore_zeros=True)
        members = await asyncio.to_thread(archive.getmembers)
    except tarfile.ReadError:
        members = []
    for member in members:
        path = member.name.removeprefix("./")
        if path not in missing:
            continue
        missing.discard(path)
        if sentence := await _keep_one(archive, member, path, sink):
            skipped.append(sentence)
    skipped += [f"{_shown(path)} was not kept: it cannot be read, or is gone." for path in sorted(missing)]
    return skipped


async def _keep_one(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, sink: FileSink) -> str | None:
    if _shown(path) != path:
        return f"{_shown(path)} was not kept: its name is not UTF-8."
    if member.issym():
        try:
            check_link(path, member.linkname)
        except ValueError:
            return f"{path} was not kept: it is a link to a place outside the job's folder."
        await sink.add_link(path, member.linkname)
        return None
    if not (member.isreg() or member.islnk()):
        return f"{path} was not kept: it is not a plain file."
    with tempfile.TemporaryFile() as copy:
        try:
            await asyncio.to_thread(_extract, archive, member, copy)
        except (KeyError, OSError, tarfile.TarError):
            return f"{path} was not kept: it could not be read whole."
        await sink.add(path, copy.fileno(), member.mode & 0o777)
    return None


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, copy: io.BufferedRandom) -> None:
    source = archive.extractfile(member)
    if source is None:
        raise KeyError(member.name)
    while block := source.read(1 << 20):
        copy.write(block)
    copy.flush()
    copy.seek(0)


def _shown(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _pack(path: Path, files: FileSource) -> None:
    new = path.with_suffix(f".{secrets.token_hex(6)}.new")  # another control plane may do the same
    with tarfile.open(new, "w", format=tarfile.GNU_FORMAT) as archive:
        for file in files.files:
            entry = tarfile.TarInfo(file.path)
            if file.link is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, file.link
                archive.addfile(entry)
                continue
            entry.mode = (file.mode or 0o644) & 0o777 | 0o600
            with files.path_of(file).open("rb") as content:
                entry.size = os.fstat(content.fileno()).st_size
                archive.addfile(entry, content)
    new.replace(path)


async def _parts(path: Path) -> AsyncIterator[bytes]:
    with contextlib.closing(await asyncio.to_thread(path.open, "rb")) as file:
        while part := await asyncio.to_thread(file.read, BLOCK):
            yield part
