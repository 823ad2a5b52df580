"""Trees: a folder as a list of content-addressed files, the form in which folders are sent and brought back.

A tree is a JSON document, itself stored under its digest. Paths are relative, with `/`, and never leave the
folder; a link points to a place inside it. Everything else (devices, sockets, links to elsewhere) is refused
where the tree is made and again where it is used.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable
from itertools import pairwise

from pydantic import Field, field_validator, model_validator

from isthmus._kit.links import escaping
from isthmus.resources.frame.fields import MAX_PATH
from isthmus.resources.frame.fields import check_path as check_path
from isthmus.resources.frame.meta import Model
from isthmus.resources.jobs import Digest

MAX_FILES = 200_000


class TreeFile(Model):
    """One file (with `digest`) or symbolic link (with `link`)."""

    path: str
    size: int = Field(default=0, ge=0)
    mode: int = Field(default=0o644, ge=0, le=0o777)
    digest: Digest | None = None
    link: str | None = Field(default=None, max_length=MAX_PATH)

    @field_validator("path")
    @classmethod
    def _safe(cls, path: str) -> str:
        return check_path(path)

    @model_validator(mode="after")
    def _one(self) -> TreeFile:
        if (self.digest is None) == (self.link is None):
            raise ValueError("has either a digest or a link")
        if self.link is not None:
            check_link(self.path, self.link)
        return self


class Tree(Model):
    """A folder."""

    files: list[TreeFile] = Field(default_factory=list, max_length=MAX_FILES)

    @model_validator(mode="after")
    def _no_clash(self) -> Tree:
        links = {f.path: f.link for f in self.files if f.link is not None}
        if out := escaping(links):
            path = min(out)
            raise ValueError(
                f"{path!r} is a link to {links[path]!r}, which leads outside the folder through other links"
            )
        # In this order what lies below a path follows it at once, so that comparing neighbours is enough, however deep
        # paths are.
        ordered = sorted(file.path.replace("/", "\0") for file in self.files)
        for one, next_ in pairwise(ordered):
            if one == next_:
                raise ValueError(f"has {_as_path(one)} twice")
            if next_.startswith(f"{one}\0"):
                raise ValueError(f"{_as_path(next_)} lies below {_as_path(one)}, which is not a folder")
        return self

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files)

    @property
    def digests(self) -> set[str]:
        """The contents the tree needs."""
        return {file.digest for file in self.files if file.digest}

    def encode(self) -> bytes:
        """The document, the same bytes for the same folder."""
        ordered = Tree.model_construct(files=sorted(self.files, key=lambda file: file.path))
        return ordered.model_dump_json(by_alias=True, exclude_none=True).encode()


def _as_path(key: str) -> str:
    return repr(key.replace("\0", "/")[:200])


def check_link(path: str, target: str) -> str:
    """A link target that stays inside the folder; raises ValueError."""
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if not target or target.startswith("/") or end == ".." or end.startswith("../") or "\0" in target:
        raise ValueError(f"{path!r} is a link to {target!r}, outside the folder; send a copy of the file instead")
    return target


def digest_of(chunks: Iterable[bytes] | bytes) -> str:
    """`sha256:…` of some content."""
    hasher = hashlib.sha256()
    for chunk in (chunks,) if isinstance(chunks, bytes) else chunks:
        hasher.update(chunk)
    return f"sha256:{hasher.hexdigest()}"
