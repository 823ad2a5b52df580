"""A store starts with whatever it once accepted: the largest objects, many of them, and all they were."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.api.context import RequestLimits
from isthmus.api.resources.admission import prepare_new
from isthmus.api.resources.sizes import check_sizes
from isthmus.errors import Expired, Invalid, TooLarge
from isthmus.resources.kinds import JOB
from isthmus.store.base import Query
from isthmus.store.opening import open_store

from .conftest import SMALL, Reopen

pytestmark = pytest.mark.anyio

LIMITS = RequestLimits()


def largest(name: str, fill: str = "x") -> dict[str, Any]:
    """A job as large as is accepted, to a few hundred bytes."""
    env = [{"name": f"A{n}", "value": fill * (100_000 // len(fill.encode()))} for n in range(12)]
    annotations = {f"note-{n}": fill * (50_000 // len(fill.encode())) for n in range(5)}
    sent = {"metadata": {"name": name, "annotations": annotations}, "spec": {"command": ["true"], "env": env}}
    made = prepare_new(JOB, sent, "physics")
    check_sizes(None, made, LIMITS)
    return made


async def test_the_largest_objects_are_listed_watched_and_found_again(reopen: Reopen) -> None:
    store = await reopen()
    start = await store.version()
    for number in range(12):
        await store.create(JOB, largest(f"large-{number:02d}"))
    store = await reopen()
    page = await store.list(Query(JOB))
    assert [record.key.name for record in page.records] == [f"large-{number:02d}" for number in range(12)]
    assert all(len(record.data) > 1_300_000 for record in page.records)
    async with store.watch(Query(JOB), since=start) as changes:
        seen = [(await anext(changes)).record for _ in range(12)]
    assert [record.key.name for record in seen if record] == [f"large-{number:02d}" for number in range(12)]


async def test_a_list_comes_in_pages_of_bounded_bytes(reopen: Reopen) -> None:
    store = await reopen()
    for number in range(7):
        await store.create(JOB, largest(f"large-{number}"))
    for limit in (None, 5, 100):
        names: list[str] = []
        token = None
        while True:
            page = await store.list(Query(JOB), limit=limit, continue_=token, most_bytes=4 * 2**20)
            assert 0 < len(page.records) <= 4, "as many as make up four megabytes"
            names += [record.key.name for record in page.records]
            token = page.continue_
            if token is None:
                break
        assert names == [f"large-{number}" for number in range(7)]


async def test_a_watch_does_not_begin_with_more_than_fits(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "store.db", replace(SMALL, buffer_bytes=3 * 2**20))
    for number in range(4):
        await store.create(JOB, largest(f"large-{number}"))
    with pytest.raises(Expired, match="list in pages"):
        async with store.watch(Query(JOB)):
            pass
    await store.close()


@given(
    st.lists(st.tuples(st.sampled_from(["x", "\n", "\u2028", "\U0001f4a9", '"', "\\"]), st.integers(1, 30)), max_size=3)
)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_whatever_was_accepted_is_there_after_a_restart(tmp_path: Path, made: list[tuple[str, int]]) -> None:
    location = tmp_path / f"{uuid.uuid4().hex}.db"
    store = await open_store(location, SMALL)
    wanted = {}
    for number, (fill, size) in enumerate(made):
        annotations = {"note": fill * (size * 1000)}
        sent = {"metadata": {"name": f"j{number}", "annotations": annotations}, "spec": {"command": ["x", fill * size]}}
        obj = prepare_new(JOB, sent, "physics")
        try:
            check_sizes(None, obj, LIMITS)
        except TooLarge:
            continue
        wanted[f"j{number}"] = (await store.create(JOB, obj)).data
    await store.close()
    again = await open_store(location, SMALL)
    assert {record.key.name: record.data for record in (await again.list(Query(JOB))).records} == wanted
    await again.close()


# What is accepted


def accepted(old: Any = None, **metadata: Any) -> Any:
    made = prepare_new(JOB, {"metadata": {"name": "x", **metadata}, "spec": {"command": ["true"]}}, "physics")
    check_sizes(old, made, LIMITS)
    return made


def test_annotations_are_bounded_together() -> None:
    half = LIMITS.annotation_bytes // 2 - 10
    accepted(annotations={"a": "x" * half, "b": "x" * half})
    for value in ("x" * half, "ä" * (half // 2)):
        with pytest.raises(TooLarge, match="annotations"):
            accepted(annotations={"a": value, "b": value, "c": "x" * 100})
    with pytest.raises(Invalid, match="annotations"):
        accepted(annotations={"a" * 400: "x"})


def test_what_was_accepted_under_older_limits_may_be_changed_but_not_grow() -> None:
    old = prepare_new(JOB, {"metadata": {"name": "x", "annotations": {"a": "x" * 2_000_000}},
                            "spec": {"command": ["true"]}}, "physics")  # fmt: skip
    new = {**old, "spec": {**old["spec"], "intent": "Cancel"}, "metadata": {**old["metadata"], "annotations": {}}}
    check_sizes(old, new, LIMITS)
    check_sizes(old, {**old, "metadata": {**old["metadata"], "labels": None}}, LIMITS)
    with pytest.raises(TooLarge):
        check_sizes(old, {**old, "metadata": {**old["metadata"], "annotations": {"a": "x" * 2_005_000}}}, LIMITS)


def test_the_elements_of_an_array_are_bounded_together() -> None:
    script = "#!/bin/sh\n" + "x" * 500_000
    sent = {"metadata": {"name": "x"}, "spec": {"script": script, "array": {"indices": "0-99999"}}}
    with pytest.raises(TooLarge, match="elements of the array"):
        check_sizes(None, prepare_new(JOB, sent, "physics"), LIMITS)
    sent["spec"]["array"] = {"indices": "0-99"}  # type: ignore[index]
    check_sizes(None, prepare_new(JOB, sent, "physics"), LIMITS)
