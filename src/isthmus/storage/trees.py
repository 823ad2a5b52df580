"""Folders to and from contents: what an engine reads a run's files from, and what it brings them back to.

Both have the shape of `engines.base.FileSource` and `FileSink` without importing it: storage knows no engines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from isthmus._kit.links import escaping
from isthmus.errors import Invalid
from isthmus.resources.frame.validation import parse
from isthmus.resources.work.trees import Tree, TreeFile, check_link, check_path

from .base import Blobs
from .quotas import disk_bytes


class TreeSource:
    """A tenant's tree, to be copied into a run's folder."""

    def __init__(self, blobs: Blobs, namespace: str, tree: Tree) -> None:
        self._blobs = blobs
        self._namespace = namespace
        self._tree = tree

    @classmethod
    async def load(cls, blobs: Blobs, namespace: str, digest: str) -> TreeSource:
        """Read the tree; raises NotFound, Invalid."""
        return cls(blobs, namespace, await blobs.get_tree(namespace, digest))

    @property
    def files(self) -> Sequence[TreeFile]:
        """What is in it; paths are checked."""
        return self._tree.files

    def path_of(self, file: TreeFile) -> Path:
        """Where the content lies on this machine; raises NotFound."""
        if file.digest is None:
            raise Invalid(f"{file.path!r} is a link and has no content")
        return self._blobs.path(self._namespace, file.digest)


class TreeSink:
    """Keeps what a run left and makes a tree of it."""

    def __init__(self, blobs: Blobs, namespace: str) -> None:
        self._blobs = blobs
        self._namespace = namespace
        self._files: dict[str, TreeFile] = {}
        self._taken = 0
        self.left_out: list[str] = []
        """A sentence for each link that was left out in the end, because it leads out through others."""

    async def add(self, path: str, source: Path | int, mode: int) -> None:
        """Keep a copy of one regular file under a relative path; the same path again replaces it."""
        _inside(path)
        taken = disk_bytes(source)
        digest, size = await self._blobs.put_file(self._namespace, source, self._taken)
        self._taken += taken
        self._files[path] = TreeFile(path=path, size=size, mode=mode & 0o777, digest=digest)

    async def add_link(self, path: str, target: str) -> None:
        """Keep a symbolic link that stays inside the folder."""
        _inside(path)
        try:
            check_link(path, target)
            target.encode()
        except ValueError as error:
            raise Invalid(str(error)) from None
        self._files[path] = TreeFile(path=path, mode=0o777, link=target)

    async def finish(self) -> tuple[str, int, int]:
        """Keep the tree; its digest, how many files it has and their size together."""
        links = {file.path: file.link for file in self._files.values() if file.link is not None}
        for path in sorted(await asyncio.to_thread(escaping, links)):
            del self._files[path]
            self.left_out.append(f"{path} was not kept: through other links it leads outside the job's folder.")
        files = [file.model_dump(by_alias=True) for file in self._files.values()]
        tree = parse(Tree, {"files": files}, "the tree of outputs")
        return await self._blobs.put_tree(self._namespace, tree, of_run=True), len(tree.files), tree.total_bytes


def _inside(path: str) -> None:
    try:
        check_path(path)
        path.encode()
    except UnicodeEncodeError:
        raise Invalid(f"the name {path!r} is not UTF-8; rename the file") from None
    except ValueError as error:
        raise Invalid(str(error)) from None
