"""References: how an image is named. Pure.

| written | means |
| --- | --- |
| `python:3.12` | of Docker Hub; without a tag, `latest` |
| `ghcr.io/org/tool:1.2`, `localhost:5000/tool@sha256:…` | of another registry, by tag or by digest |
| `oci-archive:FILE`, `docker-archive:FILE` | a file among those sent along with the job |
| `oci:FOLDER` | an OCI layout among the files sent along |

A digest that is named beside a tag decides: the tag is for people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from isthmus.errors import Cause, Invalid
from isthmus.resources.work.trees import check_path

LONGEST = 512
DOCKER_HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"
_SCHEMES = ("oci-archive", "docker-archive", "oci")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PART = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?")


@dataclass(frozen=True, slots=True)
class RegistryReference:
    """An image of a registry."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def host(self) -> str:
        """Whom to ask: Docker Hub is reached by another name than it is called by."""
        return _HUB_HOST if self.registry == DOCKER_HUB else self.registry

    @property
    def version(self) -> str:
        """What is asked for: the digest if there is one."""
        return self.digest or self.tag or "latest"

    def at(self, digest: str) -> RegistryReference:
        """The same image, by its bytes."""
        return replace(self, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.registry}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


@dataclass(frozen=True, slots=True)
class FileReference:
    """An image among the files sent along: an archive, or (with `folder`) an OCI layout."""

    path: str
    folder: bool = False
    scheme: str = "oci-archive"

    def __str__(self) -> str:
        return f"{self.scheme}:{self.path}"


Reference = RegistryReference | FileReference


def parse_reference(text: str) -> Reference:
    """What is named; raises Invalid, with the reason."""
    if " " in text:
        raise _wrong(text, "it must hold no spaces")
    if not text or len(text) > LONGEST or not text.isprintable():
        raise _wrong(text, f"it must have 1 to {LONGEST} visible characters")
    scheme, colon, rest = text.partition(":")
    if colon and scheme in _SCHEMES:
        return _file(text, scheme, rest)
    if "://" in text:
        raise _wrong(text, "leave out the scheme, such as https://")
    return _registry(text)


def is_allowed(repository: str, allowed: Sequence[str]) -> bool:
    """Whether a repository, with its registry, is one of those that a site allows; all are where it names none."""
    return not allowed or any(repository == entry or repository.startswith(f"{entry}/") for entry in allowed)


def repository_of(text: str) -> str:
    """The registry and repository of an image; empty for a file, and for what is no image."""
    try:
        found = parse_reference(text)
    except Invalid:
        return ""
    return f"{found.registry}/{found.repository}" if isinstance(found, RegistryReference) else ""


def is_file(text: str) -> bool:
    """Whether it names a file or folder sent along; nothing else of it is checked."""
    return text.partition(":")[0] in _SCHEMES and ":" in text


def _file(text: str, scheme: str, path: str) -> FileReference:
    try:
        checked = check_path(path.removeprefix("./").removesuffix("/"))
    except ValueError:
        raise _wrong(text, "the file must be one of those sent along, named from the job's folder") from None
    return FileReference(checked, scheme == "oci", scheme)


def _registry(text: str) -> RegistryReference:
    name, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        raise _wrong(text, "a digest is sha256: and 64 hexadecimal digits")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first, rest
    else:
        registry, path = DOCKER_HUB, name
    path, colon, tag = path.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise _wrong(text, "a tag has at most 128 letters, digits and any of _ . -")
    if not _HOST.fullmatch(registry) or not _valid_port(registry):
        raise _wrong(text, f"{registry[:100]} is not the name of a registry")
    if not all(_PART.fullmatch(part) for part in path.split("/")):
        raise _wrong(text, "the name has lower-case letters and digits, with single . _ - / between them")
    if registry in (DOCKER_HUB, "index.docker.io"):
        registry = DOCKER_HUB
        path = path if "/" in path else f"library/{path}"
    return RegistryReference(registry, path, tag if colon else None if at else "latest", digest if at else None)


def _valid_port(registry: str) -> bool:
    _, colon, port = registry.partition(":")
    return not colon or 0 < int(port) < 65536


def _wrong(text: str, why: str) -> Invalid:
    message = f"{text[:100]!r} is not the name of an image: {why}. Such as python:3.12 or oci-archive:image.tar"
    return Invalid(f"image: {message}", causes=(Cause("spec.image", message),))
