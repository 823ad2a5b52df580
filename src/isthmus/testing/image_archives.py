"""Images made on the spot, well-formed or not: layers of members as they are given, and archives of layers."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.images.manifests import architecture_of, digest_of

BUSYBOX = Path("/usr/bin/busybox")
HERE = architecture_of(platform.machine())
_PROGRAMS = ("sh", "cat", "env", "id", "ls", "pwd", "sleep", "touch", "true", "uname")


def member(name: str, content: bytes = b"", *, mode: int = 0o644, **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    """One member of a layer; `fields` are those of `tarfile.TarInfo`."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def folder(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    """A folder."""
    return member(name, mode=mode, type=tarfile.DIRTYPE)


def link(name: str, target: str, *, hard: bool = False) -> tuple[tarfile.TarInfo, bytes]:
    """A link."""
    return member(name, type=tarfile.LNKTYPE if hard else tarfile.SYMTYPE, linkname=target)


def layer(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A layer of these, not compressed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def busybox_layer() -> bytes:
    """A shell and a few programs in one static file: an image that runs."""
    programs = [link(f"bin/{name}", "busybox") for name in _PROGRAMS]
    return layer(
        folder("bin"),
        member("bin/busybox", BUSYBOX.read_bytes(), mode=0o755),
        *programs,
        folder("etc"),
        member("etc/os-release", b"ID=tiny\n"),
        folder("tmp", 0o1777),
    )


def config(layers: Iterable[bytes], env: Sequence[str] = (), architecture: str = HERE) -> bytes:
    """The config of an image of these layers."""
    inside = {"type": "layers", "diff_ids": [digest_of(content) for content in layers]}
    return json.dumps(
        {"architecture": architecture, "os": "linux", "config": {"Env": list(env)}, "rootfs": inside}
    ).encode()


def oci_blobs(
    layers: Sequence[bytes], env: Sequence[str] = (), architecture: str = HERE
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Everything of an image by its digest, and the descriptor of its manifest."""
    packed = [gzip.compress(content, 1, mtime=0) for content in layers]
    about = config(layers, env, architecture)
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor(about, "application/vnd.oci.image.config.v1+json"),
            "layers": [_descriptor(content, "application/vnd.oci.image.layer.v1.tar+gzip") for content in packed],
        }
    ).encode()
    blobs = {digest_of(content): content for content in (about, manifest, *packed)}
    described = _descriptor(manifest, "application/vnd.oci.image.manifest.v1+json")
    return blobs, described | {"platform": {"os": "linux", "architecture": architecture}}


def oci_files(blobs: Mapping[str, bytes], manifests: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """The files of an OCI layout."""
    index = {"schemaVersion": 2, "manifests": list(manifests)}
    named = {f"blobs/{digest.replace(':', '/')}": content for digest, content in blobs.items()}
    return {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": json.dumps(index).encode(), **named}


def oci_archive(layers: Sequence[bytes], env: Sequence[str] = (), architecture: str = HERE) -> bytes:
    """An archive of an OCI layout, as `skopeo copy … oci-archive:FILE` writes it."""
    blobs, manifest = oci_blobs(layers, env, architecture)
    return pack(oci_files(blobs, [manifest]))


def docker_archive(layers: Sequence[bytes], env: Sequence[str] = ()) -> bytes:
    """An archive as `docker save` wrote it before version 25."""
    about = config(layers, env)
    names = [f"{hashlib.sha256(content).hexdigest()}/layer.tar" for content in layers]
    listed = [{"Config": "config.json", "RepoTags": ["tiny:1"], "Layers": names}]
    files = dict(zip(names, layers, strict=True)) | {"config.json": about, "manifest.json": json.dumps(listed).encode()}
    return pack(files)


def pack(files: Mapping[str, bytes]) -> bytes:
    """A tar archive of some files."""
    return layer(*(member(name, content) for name, content in files.items()))


def _descriptor(content: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}
