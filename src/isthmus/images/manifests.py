"""Manifests: what an image is made of, as OCI and Docker write it. Pure.

An index lists the same image for several machines; a manifest names a config and layers by their digests; the config
says what is inside the layers and what a program finds in its environment. All of it comes from somebody else: read
within bounds, and nothing of it is believed that a digest does not hold.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.errors import EngineRefused

MOST_DOCUMENT = 4 * 2**20
"""Bytes of an index, manifest or config; registries take no longer ones."""
MOST_LAYERS = 500
MOST_VARIABLES = 1000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MACHINES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
    "riscv64": "riscv64",
}
MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


def architecture_of(machine: str) -> str:
    """What images call a machine: `x86_64` is amd64."""
    return _MACHINES.get(machine, machine)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One document or layer, by its digest."""

    digest: str
    size: int
    architecture: str | None = None


@dataclass(frozen=True, slots=True)
class ImageIndex:
    """The same image for several machines."""

    manifests: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class ImageManifest:
    """One image for one machine."""

    config: Descriptor
    layers: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What the config says that matters here."""

    architecture: str
    diff_ids: tuple[str, ...]
    """Digests of the layers when decompressed, the lowest first."""
    env: dict[str, str]


def digest_of(content: bytes) -> str:
    """`sha256:…`."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def is_digest(text: str) -> bool:
    """Whether it is one."""
    return _DIGEST.fullmatch(text) is not None


def parse_document(content: bytes) -> ImageIndex | ImageManifest:
    """An index or a manifest; raises EngineRefused."""
    document = _object(content)
    if isinstance(listed := document.get("manifests"), list):
        return ImageIndex(tuple(_descriptor(entry, "index") for entry in listed[:MOST_LAYERS]))
    if document.get("schemaVersion") == 1:
        raise bad("it is in Docker's old format, which nobody writes any more; build or push it again")
    layers = document.get("layers")
    if not isinstance(layers, list) or len(layers) > MOST_LAYERS:
        raise bad(f"its manifest has no list of layers, or one of more than {MOST_LAYERS}")
    return ImageManifest(
        _descriptor(document.get("config"), "manifest"), tuple(_descriptor(e, "manifest") for e in layers)
    )


def parse_config(content: bytes) -> ImageConfig:
    """A config; raises EngineRefused."""
    document = _object(content)
    rootfs, config = document.get("rootfs"), document.get("config")
    diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(diff_ids, list) or not all(isinstance(d, str) and _DIGEST.fullmatch(d) for d in diff_ids):
        raise bad("its config does not say what is inside its layers (rootfs.diff_ids)")
    architecture = document.get("architecture")
    words = config.get("Env") if isinstance(config, dict) else None
    return ImageConfig(architecture if isinstance(architecture, str) else "", tuple(diff_ids), parse_environment(words))


def choose(index: ImageIndex, architecture: str) -> Descriptor:
    """The image for this machine; raises EngineRefused."""
    fitting = [entry for entry in index.manifests if entry.architecture == architecture]
    if not fitting:
        fitting = [entry for entry in index.manifests if entry.architecture is None]
    if len({entry.digest for entry in fitting}) == 1:
        return fitting[0]
    if fitting:
        raise bad(f"it holds {len(fitting)} images, and nothing says which; write one with a single image")
    raise _elsewhere(architecture, [entry.architecture or "" for entry in index.manifests])


def check_architecture(config: ImageConfig, architecture: str) -> None:
    """Refuse what this machine cannot run."""
    if config.architecture and config.architecture != architecture:
        raise _elsewhere(architecture, [config.architecture])


def bad(why: str) -> EngineRefused:
    """The refusal of an image."""
    return EngineRefused(f"The image cannot be used: {why}.")


def _elsewhere(architecture: str, found: Sequence[str]) -> EngineRefused:
    there = ", ".join(sorted({name[:20] for name in found if name.isalnum()})[:10]) or "no other"
    return bad(f"it is made for {there}, and this site is {architecture}; choose an image or a site that fits")


def _object(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content) if len(content) <= MOST_DOCUMENT else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise bad("one of its documents is not JSON, or longer than images have")
    return document


def _descriptor(entry: object, where: str) -> Descriptor:
    found = entry if isinstance(entry, dict) else {}
    digest, size = found.get("digest"), found.get("size")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise bad(f"its {where} names something without a sha256 digest")
    if not isinstance(size, int) or not 0 <= size < 2**62:
        raise bad(f"its {where} names something without a size")
    platform = found.get("platform")
    if not isinstance(platform, dict):
        return Descriptor(digest, size)
    name = platform.get("architecture")
    linux = platform.get("os") in (None, "linux")
    return Descriptor(digest, size, name if linux and isinstance(name, str) else "unknown")


def parse_environment(words: object) -> dict[str, str]:
    """Variables that a shell can set; what is none is left out, as every runtime would."""
    found: dict[str, str] = {}
    for word in words[:MOST_VARIABLES] if isinstance(words, list) else ():
        name, equals, value = word.partition("=") if isinstance(word, str) else ("", "", "")
        if equals and "\0" not in value and _NAME.fullmatch(name) and not name.startswith("ISTHMUS_"):
            found[name] = value
    return found
