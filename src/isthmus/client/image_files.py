"""Images in files of this machine, sent along with a job: `oci-archive:FILE`, `docker-archive:FILE`, `oci:DIR`.

They go into a folder of their own among the files of the job, from which the site takes them; the job itself does not
see them there.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import NamedTuple

from isthmus.errors import Invalid

FOLDER = ".isthmus-image"
_SCHEMES = ("oci-archive", "docker-archive", "oci")


class PackedFiles(NamedTuple):
    """An image in files."""

    name: str
    """What the job calls it."""
    source: str
    """The real path of the file or folder."""
    files: Mapping[str, str]
    """Paths among the files of the job, and where each lies on this machine."""


def image_files(image: str | None) -> PackedFiles | None:
    """The files of an image; None for one of a registry. Raises Invalid."""
    scheme, colon, path = (image or "").partition(":")
    if not colon or scheme not in _SCHEMES:
        return None
    source = os.path.realpath(os.path.expanduser(path))  # noqa: PTH111
    is_there = os.path.isdir(source) if scheme == "oci" else os.path.isfile(source)  # noqa: PTH112, PTH113
    if not path or not is_there:
        what = "folder" if scheme == "oci" else "file"
        raise Invalid(f"--image {image}: there is no {what} {path!r} here")
    named = "image" if scheme == "oci" else "image.tar"
    place = posixpath.join(FOLDER, named)
    if scheme != "oci":
        return PackedFiles(f"{scheme}:{place}", source, {place: source})
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names)  # noqa: PTH118
    files = {posixpath.join(place, os.path.relpath(file, source)): file for file in inside}
    return PackedFiles(f"{scheme}:{place}", source, files)
