"""What a job finds in its folder: what was sent along, over it the outputs of jobs before it, over these its own state.

The outputs that a job takes are bound, by the digest of their tree, in the moment in which the dependency comes true:
the other job may be deleted afterwards. Contents are the tenant's already and are found by digest, so nothing is
copied and nothing sent again, at whichever sites the two jobs run. Of an array, the outputs of each element lie in a
folder named by its index.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from isthmus.resources.frame.validation import parse
from isthmus.resources.jobs import Job, JobSpec, ResolvedDependency
from isthmus.resources.kinds import JOB
from isthmus.resources.work.trees import Tree, TreeFile
from isthmus.runtime.informers import Informer
from isthmus.storage.base import Blobs
from isthmus.storage.trees import TreeSource
from isthmus.store.base import Key, Record

from .runs import expanded

_BREATH = 500
"""Elements of an array that are looked at before others get their turn."""


class Inputs:
    """Binds and brings together what jobs are given."""

    def __init__(self, jobs: Informer, blobs: Blobs) -> None:
        self._jobs, self._blobs = jobs, blobs

    async def bind(
        self, job: Job, resolved: Sequence[ResolvedDependency]
    ) -> tuple[list[ResolvedDependency], str | None]:
        """The dependencies with what the job takes of each; and why there is nothing to take, if so."""
        takes = {dependency.job for dependency in job.spec.dependencies if dependency.outputs_into is not None}
        bound, lacking = [], None
        for other in resolved:
            if other.job in takes and other.satisfied and other.tree is None:
                tree = await self._left_by(job.namespace, other)
                if tree is None:
                    lacking = lacking or (
                        f"job {other.job} left no outputs to take; name the files to keep in its spec.outputs"
                    )
                other = other.model_copy(update={"tree": tree})
            bound.append(other)
        return bound, lacking

    async def _left_by(self, namespace: str, other: ResolvedDependency) -> str | None:
        """The tree of what a job left; None if it left nothing."""
        record = self._jobs.get(Key(JOB.name, namespace, other.job))
        if record is None or record.uid != other.uid:
            return None
        if not record.obj["spec"].get("array"):
            return _tree_of(record)
        parts: list[tuple[str, str]] = []
        for number, index in enumerate(expanded(JobSpec.model_validate(record.obj["spec"]).array.indices)):  # type: ignore[union-attr]
            if number % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
            element = self._jobs.get(Key(JOB.name, namespace, f"{other.job}-{index}"))
            if element is not None and _is_element(element, record.uid) and (tree := _tree_of(element)):
                parts.append((tree, str(index)))
        return await self._blobs.put_tree(namespace, await self._whole(namespace, parts)) if parts else None

    async def files(self, job: Job, parent: Job | None = None) -> TreeSource | None:
        """The whole folder of a job's next attempt, None if it is empty; `parent` is the array it belongs to."""
        parts = [(job.spec.files.tree, ".")] if job.spec.files else []
        for waited in [parent, job] if parent else [job]:
            into = {dependency.job: dependency.outputs_into for dependency in waited.spec.dependencies}
            parts += [(d.tree, into.get(d.job) or ".") for d in waited.status.dependencies or () if d.tree]
        parts += [(job.status.checkpoint.tree, ".")] if job.status.checkpoint else []
        return TreeSource(self._blobs, job.namespace, await self._whole(job.namespace, parts)) if parts else None

    async def _whole(self, namespace: str, parts: Sequence[tuple[str, str]]) -> Tree:
        """One tree of several, each below a folder; of two files of one path the later is taken."""
        trees = [(await self._blobs.get_tree(namespace, digest), into) for digest, into in parts]
        if len(trees) == 1 and trees[0][1] == ".":
            return trees[0][0]
        return await asyncio.to_thread(_merged, trees)


def _merged(trees: Iterable[tuple[Tree, str]]) -> Tree:
    files = {file["path"]: file for tree, into in trees for file in _below(into, tree.files)}
    return parse(Tree, {"files": list(files.values())}, "the files sent along with those taken of other jobs")


def _below(folder: str, files: Iterable[TreeFile]) -> Iterator[dict[str, object]]:
    for file in files:
        yield file.to_json() | ({} if folder == "." else {"path": f"{folder}/{file.path}"})


def _tree_of(record: Record) -> str | None:
    left = record.obj["status"].get("outputs") or {}
    return left["tree"] if left.get("count") else None


def _is_element(record: Record, array: str) -> bool:
    return any(owner["uid"] == array for owner in record.obj["metadata"].get("ownerReferences") or ())
