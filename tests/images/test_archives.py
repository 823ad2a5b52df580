"""Images in files: both forms are found, for this machine; what is missing, damaged or ambiguous is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import EngineRefused
from isthmus.images.archives import PackedImage, find_image, read_archive
from isthmus.testing.image_archives import (
    HERE,
    config,
    docker_archive,
    layer,
    link,
    member,
    oci_archive,
    oci_blobs,
    oci_files,
    pack,
)

LAYERS = [layer(member("a", b"1")), layer(member("b", b"2"))]
Read = Callable[[bytes], PackedImage]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def found(content: bytes) -> PackedImage:
        (tmp_path / "image.tar").write_bytes(content)
        return find_image(read_archive(tmp_path / "image.tar"), HERE)

    return found


def refused(read: Read, content: bytes) -> str:
    with pytest.raises(EngineRefused) as caught:
        read(content)
    return caught.value.message


def test_an_oci_archive(read: Read) -> None:
    blobs, manifest = oci_blobs(LAYERS, ["PATH=/opt/bin", "A=b=c", "bad-name=1", "ISTHMUS_JOB=x", "empty"])
    image = read(pack(oci_files(blobs, [manifest])))
    assert image.digest == manifest["digest"]
    assert image.config.env == {"PATH": "/opt/bin", "A": "b=c"}
    packed = [gzip.compress(content, 1, mtime=0) for content in LAYERS]
    assert [found.piece.read(2**20) for found in image.layers] == packed
    assert all(found.digest in blobs for found in image.layers)


def test_an_archive_of_docker(read: Read) -> None:
    image = read(docker_archive(LAYERS, ["A=1"]))
    assert [found.piece.read(2**20) for found in image.layers] == LAYERS
    assert (image.config.env, image.layers[0].digest) == ({"A": "1"}, None)


def test_a_layer_that_occurs_twice_is_a_link(read: Read) -> None:
    files = {
        "x/layer.tar": LAYERS[0],
        "c.json": config([LAYERS[0], LAYERS[0]]),
        "manifest.json": json.dumps([{"Config": "c.json", "Layers": ["x/layer.tar", "y/layer.tar"]}]).encode(),
    }
    image = read(layer(*(member(n, c) for n, c in files.items()), link("y/layer.tar", "../x/layer.tar")))
    assert [found.piece.read(2**20) for found in image.layers] == [LAYERS[0]] * 2


def test_the_image_for_this_machine_is_chosen_also_below_another_index(read: Read) -> None:
    ours, other = oci_blobs(LAYERS), oci_blobs(LAYERS, architecture="sparc")
    inner = json.dumps({"schemaVersion": 2, "manifests": [other[1], ours[1]]}).encode()
    blobs, _ = oci_blobs(LAYERS)
    from isthmus.images.manifests import digest_of

    outer = {"digest": digest_of(inner), "size": len(inner)}
    image = read(pack(oci_files({**blobs, **other[0], digest_of(inner): inner}, [outer])))
    assert image.digest == ours[1]["digest"]


def test_another_machine_is_named(read: Read) -> None:
    assert "made for sparc" in refused(read, oci_archive(LAYERS, architecture="sparc"))
    unnamed, manifest = oci_blobs(LAYERS, architecture="sparc")
    del manifest["platform"]
    assert "made for sparc" in refused(read, pack(oci_files(unnamed, [manifest])))


def damaged() -> Mapping[str, bytes]:
    blobs, manifest = oci_blobs(LAYERS)
    files = oci_files(blobs, [manifest])
    at = f"blobs/{manifest['digest'].replace(':', '/')}"
    longest = max((name for name in files if name.startswith("blobs/")), key=lambda name: len(files[name]))

    def index(**fields: Any) -> bytes:
        return pack({**files, "index.json": json.dumps(fields).encode()})

    without = {name: content for name, content in files.items() if name != longest}
    return {
        "nothing": pack({"a": b"1"}),
        "not json": pack({**files, "index.json": b"["}),
        "deep": pack({**files, "index.json": b"[" * 100_000}),
        "long": pack({**files, "index.json": b" " * (4 * 2**20 + 1)}),
        "a list": pack({**files, "index.json": b"[]"}),
        "no manifests": index(manifests=[]),
        "two": index(manifests=[manifest, {**manifest, "digest": "sha256:" + "0" * 64}]),
        "bad digest": index(manifests=[{**manifest, "digest": "sha256:../../../etc/passwd"}]),
        "bad size": index(manifests=[{**manifest, "size": -1}]),
        "a circle": index(manifests=[{"digest": manifest["digest"], "size": "1"}]),
        "other manifest": pack({**files, at: files[at].replace(b"2", b"3", 1)}),
        "missing": pack(without),
        "old": pack({**files, "index.json": b'{"schemaVersion": 1}'}),
        "docker twice": pack({"manifest.json": b'[{"Config":"a","Layers":[]},{}]'}),
        "docker words": pack({"manifest.json": b'["a"]'}),
        "docker numbers": pack({"manifest.json": b'[{"Config":1,"Layers":[2]}]'}),
        "docker missing": pack({"manifest.json": b'[{"Config":"a","Layers":["/etc/passwd"]}]'}),
        "compressed": gzip.compress(oci_archive(LAYERS)),
        "cut": oci_archive(LAYERS)[:3000],
        "many": layer(*(member(str(number)) for number in range(10_001))),
    }


DAMAGED = damaged()


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_what_is_no_image_is_refused(read: Read, content: bytes) -> None:
    assert refused(read, content).startswith("The image cannot be used: ")
