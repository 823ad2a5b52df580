"""The pure parts: sessions, the index of jobs, manifests, charts, sums."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from jinja2 import nodes

from isthmus.client.jobs import copied
from isthmus.console.capacities import room_at
from isthmus.console.charts import bars_of, measures_of, scatter_of
from isthmus.console.index import JobTable, RowQuery, row_of, what_runs
from isthmus.console.live import Live, Topic
from isthmus.console.manifests import at_fields, from_form
from isthmus.console.rendering import FOLDER, as_yaml, number, shown_phase, size, template_environment
from isthmus.console.sessions import SESSION_SECONDS, TICKET_SECONDS, Sessions, new_key
from isthmus.console.visits import local_path
from isthmus.errors import Cause, Invalid
from isthmus.resources.frame.selectors import parse_labels
from isthmus.resources.frame.states import JobPhase
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB
from isthmus.store.base import Change, EventType, Key, Record
from isthmus.store.sqlite import SqliteStore


def test_templates_use_filters_and_macros_that_exist() -> None:
    """Jinja reports one that does not exist when its line is reached, which may be never in a test."""
    environment = template_environment()
    ui = environment.get_template("parts.html").module
    for name in environment.list_templates():
        tree = environment.parse((FOLDER / "templates" / name).read_text())
        for found in tree.find_all((nodes.Filter, nodes.Test)):
            known = environment.filters if isinstance(found, nodes.Filter) else environment.tests
            assert found.name in known, f"{name}:{found.lineno}: {found.name}"
        for attribute in tree.find_all(nodes.Getattr):
            if isinstance(attribute.node, nodes.Name) and attribute.node.name == "ui":
                assert hasattr(ui, attribute.attr), f"{name}:{attribute.lineno}: ui.{attribute.attr}"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_sealed_and_ends() -> None:
    clock = Clock()
    sessions = Sessions(new_key(), clock)
    session, cookie = sessions.begin("ist_a_b")
    assert sessions.open(cookie) == session
    assert "ist_a_b" not in cookie
    assert sessions.open(cookie[:-4] + "AAA=") is None
    assert sessions.open("") is None
    assert sessions.open("ünsinn") is None
    assert Sessions(new_key(), clock).open(cookie) is None, "another instance's"
    clock.now += SESSION_SECONDS
    assert sessions.open(cookie) is None


def test_codes_belong_to_one_session() -> None:
    sessions = Sessions(new_key())
    mine, _ = sessions.begin("ist_a_b")
    other, _ = sessions.begin("ist_a_b")
    assert sessions.right_code(mine.word, sessions.code(mine.word))
    assert not sessions.right_code(other.word, sessions.code(mine.word))
    assert not sessions.right_code("", sessions.code(""))
    assert not sessions.right_code(mine.word, "ü")


def test_a_ticket_is_good_once_and_soon() -> None:
    clock = Clock()
    sessions = Sessions(new_key(), clock)
    ticket = sessions.new_ticket("ist_a_b")
    assert sessions.ticket(ticket) == "ist_a_b", "looking does not use it up"
    assert sessions.ticket(ticket, use=True) == "ist_a_b"
    assert sessions.ticket(ticket, use=True) is None
    late = sessions.new_ticket("ist_a_b")
    clock.now += TICKET_SECONDS
    assert sessions.ticket(late) is None


@pytest.mark.parametrize(
    "path",
    ["", "//evil.example/x", "https://evil.example", "/console/\\evil", "/other", "/console/a\nb", "javascript:x"],
)
def test_only_the_console_itself_is_gone_back_to(path: str) -> None:
    assert local_path(path) == "/console/"
    assert local_path("/console/jobs?q=x") == "/console/jobs?q=x"


def job(number: int, namespace: str = "physics", **fields: Any) -> Record:
    metadata = {
        "name": f"job-{number}",
        "namespace": namespace,
        "uid": f"u{number:06}",
        "creationTimestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
        "labels": fields.pop("labels", {}),
    }
    obj = {
        "kind": "Job",
        "metadata": metadata,
        "spec": {"command": ["true"], **fields.pop("spec", {})},
        "status": fields,
    }
    data = json.dumps(validate(JOB, obj)).encode()
    return Record(Key("Job", namespace, metadata["name"]), metadata["uid"], number, data)


@pytest.fixture
def index() -> JobTable:
    return JobTable(lambda _: None)


@pytest.mark.anyio
async def test_pages_are_newest_first_and_go_on(index: JobTable) -> None:
    index.replace(job(number) for number in (3, 1, 2, 0, 4))
    rows, further = await index.page(RowQuery(None), 2)
    assert [row.name for row in rows] == ["job-4", "job-3"]
    index.change(Change(EventType.ADDED, 9, job(9)))
    rows, further = await index.page(RowQuery(None), 2, further)
    assert [row.name for row in rows] == ["job-2", "job-1"], "what came meanwhile shifts nothing"
    rows, further = await index.page(RowQuery(None), 2, further)
    assert [row.name for row in rows] == ["job-0"]
    assert further is None


@pytest.mark.anyio
async def test_only_wanted_rows(index: JobTable) -> None:
    records = [
        job(0, "biology"),
        job(1, phase="Failed", labels={"team": "a"}),
        job(2, phase="Running", site="x"),
        job(3, labels={"isthmus.dev/array": "job-2"}),
    ]
    index.replace(records)

    async def names(**wanted: Any) -> list[str]:
        found, _ = await index.page(RowQuery(wanted.pop("tenants", {"physics"}), **wanted), 10)
        return [row.name for row in found]

    assert await names() == ["job-2", "job-1"]
    assert await names(elements=True) == ["job-3", "job-2", "job-1"]
    assert await names(phases=(JobPhase.FAILED,)) == ["job-1"]
    assert await names(labels=parse_labels("team=a")) == ["job-1"]
    assert await names(site="x") == ["job-2"]
    assert await names(text="b-1") == ["job-1"]
    assert await names(tenants=()) == []
    assert index.counts({"physics"}) == {JobPhase.FAILED: 1, JobPhase.RUNNING: 1}, "elements count as their array"
    index.change(Change(EventType.MODIFIED, 10, job(2, phase="Succeeded")))
    index.change(Change(EventType.DELETED, 11, records[1]))
    assert {k: v for k, v in index.counts(None).items() if v} == {JobPhase.PENDING: 1, JobPhase.SUCCEEDED: 1}
    assert len(index) == 3


@pytest.mark.anyio
async def test_a_page_hears_what_changed_since_it_was_made(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.open()
    live = Live(store)
    topics = (Topic("Job", {"physics"}),)
    mark = live.mark

    async def first(mark: str) -> bytes:
        stream = live.events(topics, mark)
        async with aclosing(stream):
            await anext(stream)
            return await anext(stream)

    live.jobs.change(Change(EventType.ADDED, 1, job(1, "biology")))
    waiting = asyncio.create_task(first(mark))
    await asyncio.sleep(0)
    live.jobs.change(Change(EventType.ADDED, 2, job(2, "biology")))
    assert not waiting.done(), "others' jobs are no news"
    live.jobs.change(Change(EventType.ADDED, 3, job(3)))
    async with asyncio.timeout(30):
        assert b"changed" in await waiting
        assert b"changed" in await first(mark), "what happened before the stream began"
        assert b"changed" in await first("otherboot-3"), "made by another process"
        assert b"changed" in await first("")
    waiting = asyncio.create_task(first(live.mark))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done(), "it is as it should be"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await live.close()
    await store.close()


def test_the_form_makes_a_manifest() -> None:
    fields = {
        "what": "script",
        "spec.script": "#!/bin/sh\r\necho hi\r\n",
        "metadata.name": "train",
        "metadata.namespace": "physics",
        "spec.resources.cpus": "2",
        "spec.resources.devices": "akida",
        "device-count": "2",
        "spec.env": "A=1\nB=x=y\n",
        "spec.outputs": "out/*.csv\nplot.png",
        "spec.priority": "-3",
    }
    made = from_form(fields)
    assert made["spec"]["script"] == "#!/bin/sh\necho hi\n"
    assert made["spec"]["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "x=y"}]
    assert made["spec"]["resources"] == {"cpus": "2", "devices": [{"class": "akida", "count": 2}]}
    assert made["spec"]["outputs"] == ["out/*.csv", "plot.png"]
    assert made["spec"]["priority"] == -3
    validate(JOB, made)
    assert "script: |\n" in as_yaml(made), "people read scripts as lines"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"what": "command", "spec.command": "echo 'open"}, "spec.command"),
        ({"spec.env": "no equals"}, "spec.env"),
        ({"spec.priority": "high"}, "spec.priority"),
    ],
)
def test_what_makes_no_manifest_is_told_at_its_field(fields: dict[str, str], where: str) -> None:
    with pytest.raises(Invalid) as caught:
        from_form(fields)
    assert list(at_fields(caught.value.causes)[0]) == [where]


def test_causes_find_their_fields() -> None:
    causes = [Cause("spec.resources.devices[0].class", "a"), Cause("spec.nonsense", "b"), Cause("", "c")]
    assert at_fields(causes) == ({"spec.resources.devices": "a"}, ["spec.nonsense: b", "c"])


def test_a_copy_is_new_and_nobodys_element() -> None:
    old = job(1, labels={"team": "a", "isthmus.dev/array": "x"}, spec={"intent": "Cancel"}, phase="Cancelled").obj
    made = copied(old)
    assert made["metadata"]["labels"] == {"team": "a"}
    assert made["metadata"]["name"].startswith("job-1-")
    assert "intent" not in made["spec"]
    assert "status" not in made
    validate(JOB, made)


def cell(index: int, time: float | None, energy: float | None, **more: Any) -> dict[str, Any]:
    def spread(value: float) -> dict[str, float]:
        return {"median": value, "low": value * 0.9, "high": value * 1.1, "min": value, "max": value, "count": 3}

    found = {"index": index, "device": f"d{index}", "parameters": {}, **more}
    return found | ({"runTime": spread(time)} if time else {}) | ({"energy": spread(energy)} if energy else {})


def test_bars_have_their_spread_in_order() -> None:
    cells = [cell(0, 2, 5, values={"accuracy": {"median": 0.9, "count": 1}}), cell(1, 4, None), cell(2, None, None)]
    assert list(measures_of(cells)) == ["runTime", "energy", "values.accuracy"]
    drawn = bars_of(cells, "runTime")
    assert [bar.name for bar in drawn.bars] == ["d0", "d1"]
    assert drawn.bars[1].length == pytest.approx(2 * drawn.bars[0].length)
    assert all(bar.low < drawn.left + bar.length < bar.high <= drawn.width for bar in drawn.bars)
    assert bars_of(cells, "values.accuracy").bars[0].value == 0.9
    assert bars_of([], "runTime").bars == []


def test_the_scatter_joins_the_front() -> None:
    drawn = scatter_of([cell(0, 1, 9), cell(1, 5, 2), cell(2, 6, 8), cell(3, None, 1)], [0, 1])
    assert drawn is not None
    assert [point.front for point in drawn.points] == [True, True, False]
    assert len(drawn.front.split()) == 2
    assert scatter_of([cell(0, 1, None)], []) is None


def test_names_in_the_scatter_do_not_cover_each_other() -> None:
    close = scatter_of([cell(n, 2.1 + n / 100, 4.9 + n / 100) for n in range(6)], [0])
    assert close is not None
    assert close.points[0].label
    assert close.x_ticks[0].value > 1.5, "where all are close together it does not begin at 0"
    assert 4 <= len(close.x_ticks) <= 10
    same = scatter_of([cell(n, 2.0, 5.0) for n in range(4)], [2])
    assert same is not None
    assert same.points[2].label, "the front comes first"


def test_room_is_what_jobs_leave() -> None:
    site = {
        "metadata": {"name": "x"},
        "status": {
            "capacity": {"cpus": 8, "memoryBytes": 2**33, "devices": {"akida": 3, "cpu": 8, "gpu": 1}},
            "others": {"cpus": 1.5, "memoryBytes": 2**30, "devices": {"gpu": 2}},
        },
    }
    wants = {"resources": {"cpus": "500m", "tasks": 2, "memory": "1Gi", "devices": [{"class": "akida"}]}}
    rows = [row_of(job(0, site="x", phase="Running", spec=wants))]
    room = room_at([site], rows)[0]
    assert (room.cpus, room.memory) == ((5.5, 8), (5 * 2**30, 2**33)), "free, and all there are"
    assert room.devices == {"akida": (1, 3), "cpu": (5, 8), "gpu": (0, 1)}, "whole ones, and never less than none"
    silent = room_at([{"metadata": {"name": "x"}}], rows)[0]
    assert (silent.cpus, silent.memory, silent.devices) == ((0, 0), (0, 0), {})


def test_words() -> None:
    assert [shown_phase("Running", "Cancel"), shown_phase("Cancelled", "Cancel")] == ["Cancelling", "Cancelled"]
    assert [shown_phase("Pending", "Hold"), shown_phase("Running", "Hold")] == ["Held", "Running"]
    assert [number(0.123456), number(1234567), number(None), number(12.0)] == ["0.123", "1,234,567", "-", "12"]
    assert [size(0), size(1000), size(1536), size(3 * 2**30)] == ["0 B", "1000 B", "1.5 KiB", "3 GiB"]


def test_a_command_is_shown_as_one_would_type_it() -> None:
    assert what_runs({"command": ["sh", "-c", "exit 3"]}) == "sh -c 'exit 3'"
    assert what_runs({"script": "#!/bin/sh\n# why\n\necho hi\n"}) == "echo hi"
