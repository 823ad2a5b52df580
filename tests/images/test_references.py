"""Names of images."""

from __future__ import annotations

import pytest

from isthmus.errors import Invalid
from isthmus.images.references import FileReference, RegistryReference, is_file, parse_reference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "whole", "host", "version"),
    [
        ("python", "docker.io/library/python:latest", "registry-1.docker.io", "latest"),
        ("python:3.12", "docker.io/library/python:3.12", "registry-1.docker.io", "3.12"),
        ("docker.io/a/b", "docker.io/a/b:latest", "registry-1.docker.io", "latest"),
        ("index.docker.io/b:1", "docker.io/library/b:1", "registry-1.docker.io", "1"),
        ("ghcr.io/org/tool__x:V1.2-a_b", "ghcr.io/org/tool__x:V1.2-a_b", "ghcr.io", "V1.2-a_b"),
        ("localhost/x", "localhost/x:latest", "localhost", "latest"),
        ("localhost:5000/x/y/z:1", "localhost:5000/x/y/z:1", "localhost:5000", "1"),
        (f"python@{DIGEST}", f"docker.io/library/python@{DIGEST}", "registry-1.docker.io", DIGEST),
        (f"python:3@{DIGEST}", f"docker.io/library/python:3@{DIGEST}", "registry-1.docker.io", DIGEST),
    ],
)
def test_registries(text: str, whole: str, host: str, version: str) -> None:
    found = parse_reference(text)
    assert isinstance(found, RegistryReference)
    assert (str(found), found.host, found.version) == (whole, host, version)
    assert parse_reference(str(found)) == found
    assert found.at(DIGEST).version == DIGEST


@pytest.mark.parametrize(
    ("text", "path", "folder"),
    [
        ("oci-archive:image.tar", "image.tar", False),
        ("docker-archive:./a/b.tar", "a/b.tar", False),
        ("oci:layout/", "layout", True),
        ("oci-archive:a:b.tar", "a:b.tar", False),
    ],
)
def test_files(text: str, path: str, folder: bool) -> None:
    assert parse_reference(text) == FileReference(path, folder, text.partition(":")[0])
    assert is_file(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Python",
        "a b",
        "a\n",
        "a/../b",
        "../x",
        "/x",
        "a//b",
        "https://ghcr.io/x",
        "x:",
        "x:" + "t" * 129,
        "x@sha256:1",
        "x@md5:" + "a" * 64,
        "x@" + "sha512:" + "a" * 128,
        "ghcr.io:99999/x",
        "ghcr.io:/x",
        "-a.io/x",
        "user@host.io/x",
        "a.io?x/y",
        "a.io/x#y",
        "x" * 513,
        "a" + "-" * 500,
        "oci-archive:",
        "oci-archive:/etc/passwd",
        "oci-archive:../x.tar",
        "oci:a/../../x",
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not the name of an image"):
        parse_reference(text)
