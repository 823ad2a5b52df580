"""Images in files: OCI layouts (folders, or tar archives of them) and what `docker save` writes.

Nothing is copied: a layer is a piece of the archive, where it lies. An archive is recognised by what is in it, not by
its name: Docker writes both forms into one since version 25.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .manifests import (
    MOST_DOCUMENT,
    MOST_LAYERS,
    Descriptor,
    ImageConfig,
    ImageIndex,
    bad,
    check_architecture,
    choose,
    digest_of,
    parse_config,
    parse_document,
)
from .tar_streams import FILE, LINK, BadArchive, TarReader

_MOST_MEMBERS = 10_000
_MOST_INDEXES = 4


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Part of a file on this machine."""

    path: Path
    offset: int
    size: int

    def read(self, most: int) -> bytes:
        """All of it, if it is no longer than that; raises EngineRefused."""
        if self.size > most:
            raise bad(f"one of its documents has more than {most} bytes")
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, and what it must be."""

    piece: FilePiece
    diff_id: str
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class PackedImage:
    """An image that is here, ready to be unpacked."""

    digest: str
    """What it is known by: that of its manifest; of its config, where there is no manifest."""
    config: ImageConfig
    layers: tuple[Layer, ...]


def read_archive(path: Path) -> Mapping[str, FilePiece]:
    """What is in an archive, by name; raises EngineRefused."""
    found: dict[str, FilePiece] = {}
    links: dict[str, str] = {}
    size = path.stat().st_size
    with path.open("rb") as file:
        stream = _FileStream(file, size)
        try:
            for entry in TarReader(stream):
                name = posixpath.normpath(entry.name)
                if len(found) + len(links) >= _MOST_MEMBERS:
                    raise BadArchive(f"it has more than {_MOST_MEMBERS} members")
                if entry.kind == FILE:
                    found[name] = FilePiece(path, file.tell(), entry.size)
                elif entry.kind == LINK:  # a layer that occurs twice, as old Dockers write it
                    links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.target))
        except BadArchive as error:
            raise bad(f"{error} (compressed archives are not read: decompress it first)") from error
    return found | {name: found[target] for name, target in links.items() if target in found}


def find_image(pieces: Mapping[str, FilePiece], architecture: str) -> PackedImage:
    """The image for this machine; raises EngineRefused."""
    if "index.json" in pieces:
        return _of_layout(pieces, architecture)
    if "manifest.json" in pieces:
        return _of_docker(pieces, architecture)
    raise bad("it is neither an OCI layout (index.json) nor an archive of docker save (manifest.json)")


def make_image(
    digest: str, config: bytes, layers: list[tuple[FilePiece, str | None]], architecture: str
) -> PackedImage:
    """Put together what was found; raises EngineRefused."""
    parsed = parse_config(config)
    check_architecture(parsed, architecture)
    if len(parsed.diff_ids) != len(layers):
        raise bad(f"it has {len(layers)} layers, and its config describes {len(parsed.diff_ids)}")
    found = [Layer(piece, diff, digest) for (piece, digest), diff in zip(layers, parsed.diff_ids, strict=True)]
    return PackedImage(digest, parsed, tuple(found))


def _of_layout(pieces: Mapping[str, FilePiece], architecture: str) -> PackedImage:
    document = parse_document(pieces["index.json"].read(MOST_DOCUMENT))
    digest = ""
    for _ in range(_MOST_INDEXES):
        if not isinstance(document, ImageIndex):
            break
        chosen = choose(document, architecture)
        digest = chosen.digest
        document = parse_document(_document(pieces, chosen))
    if isinstance(document, ImageIndex) or not digest:
        raise bad("its index leads to no manifest")
    layers: list[tuple[FilePiece, str | None]] = [(_blob(pieces, layer), layer.digest) for layer in document.layers]
    return make_image(digest, _document(pieces, document.config), layers, architecture)


def _of_docker(pieces: Mapping[str, FilePiece], architecture: str) -> PackedImage:
    try:
        listed = json.loads(pieces["manifest.json"].read(MOST_DOCUMENT))
        (only,) = listed
        names = [posixpath.normpath(name) for name in only["Layers"]]
        config = pieces[posixpath.normpath(only["Config"])].read(MOST_DOCUMENT)
        layers: list[tuple[FilePiece, str | None]] = [(pieces[name], None) for name in names[: MOST_LAYERS + 1]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise bad("its manifest.json is not that of one whole image; save a single image") from None
    return make_image(digest_of(config), config, layers, architecture)


def _document(pieces: Mapping[str, FilePiece], wanted: Descriptor) -> bytes:
    content = _blob(pieces, wanted).read(MOST_DOCUMENT)
    if digest_of(content) != wanted.digest:
        raise bad("one of its documents is not what its digest says; write it again")
    return content


def _blob(pieces: Mapping[str, FilePiece], wanted: Descriptor) -> FilePiece:
    piece = pieces.get(f"blobs/{wanted.digest.replace(':', '/')}")
    if piece is None or piece.size != wanted.size:
        raise bad(f"{wanted.digest} is missing in it, or has another size; write it again, with all layers")
    return piece


class _FileStream:
    """A file, of which contents are passed over and not read."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def skip(self, size: int) -> int:
        before = self._file.tell()
        return self._file.seek(min(before + size, self._size)) - before
