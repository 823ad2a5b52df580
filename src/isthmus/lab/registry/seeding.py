"""The image that a registry has from the beginning, and how images are put there."""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import httpx

from isthmus.errors import Misconfigured
from isthmus.images.manifests import architecture_of, digest_of
from isthmus.lab.kubernetes.images import SEARCHED, write_base

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def make_image(folder: Path) -> tuple[dict[str, bytes], bytes]:
    """What the image is made of, by digest, and its manifest: a shell and the usual small programs."""
    file = folder / "layer.tar"
    write_base(file)
    content = file.read_bytes()
    file.unlink()
    layer = gzip.compress(content, 6, mtime=0)
    config = json.dumps(
        {
            "architecture": architecture_of(platform.machine()),
            "os": "linux",
            "config": {"Env": [f"PATH={SEARCHED}"], "Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        }
    ).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _described(config, _CONFIG),
        "layers": [_described(layer, _LAYER)],
    }
    return {digest_of(part): part for part in (config, layer)}, json.dumps(manifest).encode()


def push(client: httpx.Client, name: str, tag: str, blobs: dict[str, bytes], manifest: bytes) -> None:
    """Put an image into the registry; what is there already is not sent again."""
    for digest, content in blobs.items():
        if client.head(f"{name}/blobs/{digest}").status_code == 200:
            continue
        place = _good(client.post(f"{name}/blobs/uploads/"), 202).headers["location"]
        _good(client.put(f"{place}&digest={digest}", content=content), 201)
    kind = str(json.loads(manifest).get("mediaType", MANIFEST))
    _good(client.put(f"{name}/manifests/{tag}", content=manifest, headers={"Content-Type": kind}), 201)


def _good(answer: httpx.Response, wanted: int) -> httpx.Response:
    if answer.status_code != wanted:
        raise Misconfigured(
            f"The registry answers {answer.status_code} to an image that is pushed: {answer.text[:200]}"
        )
    return answer


def _described(content: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest_of(content), "size": len(content)}
