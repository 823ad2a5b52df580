"""The storage contract: contents by digest, each tenant's apart from every other's.

Contents are never shared between tenants, though their digests may be equal: to answer "that is here already"
across tenants would show one what another has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Protocol

from isthmus.resources.work.trees import Tree


class Blobs(Protocol):
    """Where contents live."""

    async def missing(self, namespace: str, digests: Iterable[str]) -> list[str]:
        """Those that are not here yet."""
        ...

    async def put(self, namespace: str, digest: str, chunks: AsyncIterator[bytes]) -> int:
        """Keep a content, if it is what the digest says; its size. Raises Invalid, StoreUnavailable (disk full)."""
        ...

    async def put_file(self, namespace: str, source: Path | int, beside: int = 0) -> tuple[str, int]:
        """Keep a copy of a regular file that a run left, by its path or an open descriptor; its digest and size.

        `beside` are the bytes of the same run that are kept already. Raises TooLarge where all of them together are
        more than the tenant may keep at all.
        """
        ...

    def path(self, namespace: str, digest: str) -> Path:
        """Where a content lies on this machine; raises NotFound."""
        ...

    async def put_tree(self, namespace: str, tree: Tree, *, of_run: bool = False) -> str:
        """Keep a tree, which somebody sends or a run left; its digest."""
        ...

    async def get_tree(self, namespace: str, digest: str) -> Tree:
        """Read a tree; raises NotFound, Invalid."""
        ...

    async def sweep(self, namespace: str, kept: AbstractSet[str], older_than: float) -> int:
        """Remove contents that are not among those kept and were not used for so many seconds; how many."""
        ...

    async def used(self, namespace: str) -> int:
        """Bytes that the tenant's contents take on the disk."""
        ...

    async def drop(self, namespace: str) -> None:
        """Remove everything of a tenant."""
        ...
