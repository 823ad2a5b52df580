"""Files that nobody names go after a while; everything else stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from isthmus.reconcilers.sweeping import Sweeper
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EXPERIMENT, JOB, TENANT
from isthmus.resources.work.trees import Tree, TreeFile
from isthmus.runtime.leading import Sole
from isthmus.storage.directory import DirectoryBlobs
from isthmus.store.opening import open_store

pytestmark = pytest.mark.anyio


async def tree_of(blobs: DirectoryBlobs, tmp_path: Path, text: str) -> tuple[str, str]:
    source = tmp_path / "source"
    source.write_text(text)
    digest, size = await blobs.put_file("t", source)
    return await blobs.put_tree("t", Tree(files=[TreeFile(path="f", digest=digest, size=size)])), digest


async def test_only_what_no_job_names_and_nobody_used_lately_is_removed(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "a.db")
    blobs = DirectoryBlobs(tmp_path / "files")
    await blobs.open()
    sent, sent_file = await tree_of(blobs, tmp_path, "sent")
    left, left_file = await tree_of(blobs, tmp_path, "left")
    taken, taken_file = await tree_of(blobs, tmp_path, "taken of another")
    unused, unused_file = await tree_of(blobs, tmp_path, "unused")
    asked, asked_file = await tree_of(blobs, tmp_path, "asked for again")
    job: dict[str, Any] = {
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "t"},
        "spec": {"command": ["x"], "files": {"tree": sent}},
    }
    made = validate(JOB, job)
    made["status"]["outputs"] = {"tree": left, "bytes": 4, "count": 1}
    made["status"]["dependencies"] = [{"job": "k", "uid": "u", "satisfied": True, "tree": taken}]
    await store.create(TENANT, validate(TENANT, {"kind": "Tenant", "metadata": {"name": "t"}}))
    await store.create(JOB, made)
    for path in (tmp_path / "files" / "t").rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    assert await blobs.missing("t", [asked, asked_file]) == []
    assert await Sweeper(store, blobs, Sole()).sweep() == 2
    assert await blobs.missing("t", [sent, sent_file, left, left_file, taken, taken_file, asked, asked_file]) == []
    assert set(await blobs.missing("t", [unused, unused_file])) == {unused, unused_file}
    await store.close()


async def test_a_tree_that_cannot_be_read_stops_the_sweep_of_its_tenant(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "a.db")
    blobs = DirectoryBlobs(tmp_path / "files")
    await blobs.open()
    source = tmp_path / "source"
    source.write_text("not a tree")
    digest, _ = await blobs.put_file("t", source)
    orphan, _ = await tree_of(blobs, tmp_path, "orphan")
    job = {
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "t"},
        "spec": {"command": ["x"], "files": {"tree": digest}},
    }
    await store.create(TENANT, validate(TENANT, {"kind": "Tenant", "metadata": {"name": "t"}}))
    await store.create(JOB, validate(JOB, job))
    assert await Sweeper(store, blobs, Sole()).sweep(unused_for=-10) == 0
    assert await blobs.missing("t", [orphan]) == []
    await store.close()


async def test_files_of_an_experiment_are_kept_before_its_runs_are_made(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "a.db")
    blobs = DirectoryBlobs(tmp_path / "files")
    await blobs.open()
    sent, sent_file = await tree_of(blobs, tmp_path, "sent with the experiment")
    unused, _ = await tree_of(blobs, tmp_path, "unused")
    spec = {"template": {"command": ["x"], "files": {"tree": sent}}}
    made = {"kind": "Experiment", "metadata": {"name": "e", "namespace": "t"}, "spec": spec}
    await store.create(TENANT, validate(TENANT, {"kind": "Tenant", "metadata": {"name": "t"}}))
    await store.create(EXPERIMENT, validate(EXPERIMENT, made))
    await Sweeper(store, blobs, Sole()).sweep(unused_for=-10)
    assert await blobs.missing("t", [sent, sent_file, unused]) == [unused]
    await store.close()


async def test_nothing_is_swept_when_the_store_cannot_be_read(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "a.db")
    blobs = DirectoryBlobs(tmp_path / "files")
    await blobs.open()
    orphan, _ = await tree_of(blobs, tmp_path, "orphan")
    await store.create(TENANT, validate(TENANT, {"kind": "Tenant", "metadata": {"name": "t"}}))
    await store.close()
    assert await Sweeper(store, blobs, Sole()).sweep(unused_for=-10) == 0
    assert await blobs.missing("t", [orphan]) == []
