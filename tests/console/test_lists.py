"""The lists: what is counted, sorted, filtered, folded and selected, and what is said of sites that do not answer."""

from __future__ import annotations

import re
from typing import Any

import pytest

from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EXPERIMENT, JOB, SITE
from isthmus.store.base import Key
from isthmus.testing.apis import RunningApi

from .conftest import Person

pytestmark = pytest.mark.anyio


async def experiment(api: RunningApi, name: str, **status: Any) -> str:
    spec = {"template": {"command": ["true"]}, "matrix": {"devices": ["cpu"]}}
    metadata = {"name": name, "namespace": "physics"}
    obj = {"kind": "Experiment", "metadata": metadata, "spec": spec, "status": status}
    return (await api.context.store.create(EXPERIMENT, validate(EXPERIMENT, obj))).uid


async def run_of(api: RunningApi, parent: str, name: str, label: str = "isthmus.dev/experiment", **status: Any) -> None:
    metadata = {"name": name, "namespace": "physics", "labels": {label: parent}}
    obj = {"kind": "Job", "metadata": metadata, "spec": {"command": ["true"]}, "status": status}
    await api.context.store.create(JOB, validate(JOB, obj))


def names_in(text: str) -> list[str]:
    return re.findall(r"data-row>([^<]+)</a>", text)


async def site(api: RunningApi, name: str, phase: str) -> None:
    capacity = {"cpus": 4, "memoryBytes": 2**30, "devices": {"cpu": 4, "akida": 2}}
    status = {"phase": phase, "capacity": capacity, "message": "connection refused"}
    obj = {"metadata": {"name": name}, "spec": {"driver": "local", "local": {}}, "status": status}
    await api.context.store.create(SITE, validate(SITE, obj))


async def test_the_overview_counts_what_it_lists(api: RunningApi, person: Person) -> None:
    runs = {"total": 3, "succeeded": 1, "active": 2}
    await experiment(api, "compare", phase="Running", runs=runs)
    for number in range(2):
        await run_of(api, "compare", f"compare-0-{number}", phase="Running", site="here")
    await api.create_job("alone", phase="Running", site="here")
    text = await person.see("/")
    assert re.search(r"<strong>2</strong><span>running", text), "an experiment is one, and so is a job"
    assert names_in(text) == ["alone", "compare"]
    assert "1/3 runs" in text
    assert names_in(await person.see("/jobs?state=active")) == ["alone", "compare"], "as the link says"


async def test_sites_that_do_not_answer_offer_nothing(api: RunningApi, person: Person) -> None:
    await site(api, "away", "Unreachable")
    await site(api, "closed", "Disabled")
    await site(api, "good", "Ready")
    for path in ("/", "/sites", "/sites/away"):
        text = await person.see(path)
        away = text[text.index("away") :].partition("good")[0] if path != "/sites/away" else text
        assert "Not reachable, so it is not known what is free" in away, path
        assert "of 4 free" not in away, path
    text = await person.see("/")
    assert text.index("Recent failures") < text.index("/sites/away") < text.index("/sites/good"), "trouble comes first"
    assert "Drained: takes no new jobs" in text
    assert re.findall(r'class="gauge-name">([^<]+)', text) == ["CPUs", "Memory", "akida"], "CPUs are told once"


async def test_rows_are_sorted_by_their_columns(api: RunningApi, person: Person) -> None:
    for name, site_name, status in (
        ("b", "x", {"phase": "Failed", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:09Z"}),
        ("c", "z", {"phase": "Succeeded", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"}),
        ("a", "y", {"phase": "Pending"}),
    ):
        await api.create_job(name, site=site_name, **status)
    assert names_in(await person.see("/jobs")) == ["a", "c", "b"], "newest first"
    for sort, order in (
        ("name", "abc"), ("-name", "cba"), ("site", "bac"), ("-time", "cba"), ("state", "abc"), ("submitted", "bca"),
        ("nonsense", "acb"),
    ):  # fmt: skip
        assert names_in(await person.see(f"/jobs?sort={sort}")) == list(order), sort
    text = await person.see("/jobs?sort=name&state=failed")
    assert re.search(r'aria-sort="ascending"><a href="\?state=failed&sort=-name">Name', text), "and back, filters kept"


async def test_sorted_lists_have_pages_too(api: RunningApi, person: Person) -> None:
    for number in range(60):
        await api.create_job(f"job-{number:03}")
    first = await person.see("/jobs?sort=name")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following
    second = await person.see(f"/jobs{following[1]}")
    assert [*names_in(first), *names_in(second)] == [f"job-{number:03}" for number in range(60)]
    assert names_in(await person.see("/jobs?sort=name&page=99999999999")) == names_in(first)
    assert names_in(await person.see("/jobs?sort=name&page=77")) == []


async def test_mine_are_those_of_the_caller(api: RunningApi, person: Person) -> None:
    await api.create_job("hers", submittedBy="eve")
    await api.create_job("mine", submittedBy="member")
    await api.create_job("nobodys")
    assert names_in(await person.see("/jobs?mine=1")) == ["mine"]
    text = await person.see("/jobs")
    assert re.search(r">eve</td>", text), "and whose each one is"
    assert "your user name (member)" in await person.see("/jobs?mine=1&q=zzz")


async def test_runs_are_folded_under_what_made_them(api: RunningApi, person: Person) -> None:
    uid = await experiment(api, "compare", phase="Running", runs={"total": 11})
    for number in range(11):
        await run_of(api, "compare", f"compare-0-{number}")
    await api.create_job("alone")
    closed = await person.see("/jobs")
    assert names_in(closed) == ["alone", "compare"]
    link = re.search(r'href="(\?[^"]+)" aria-expanded="false">11 runs', closed)
    assert link
    opened = await person.see(f"/jobs{link[1]}")
    assert names_in(opened) == ["alone", "compare", *(f"compare-0-{number}" for number in range(11))]
    back = re.search(r'href="(\?[^"]*)" aria-expanded="true"', opened)
    assert back
    assert names_in(await person.see(f"/jobs{back[1]}")) == ["alone", "compare"]
    assert names_in(await person.see(f"/jobs?open={uid},nonsense,{'x' * 500}"))[1:3] == ["compare", "compare-0-0"]


async def test_arrays_unfold_and_tell_their_state(api: RunningApi, person: Person) -> None:
    counts = {"total": 8, "created": 3, "active": 1, "succeeded": 1, "failed": 1}
    spec = {"command": ["true"], "array": {"indices": "0-7", "limit": 2}}
    record = await api.create_job("many", spec, phase="Running", array=counts)
    for number, phase in enumerate(("Succeeded", "Failed", "Running")):
        await run_of(api, "many", f"many-{number}", "isthmus.dev/array", phase=phase, site="here")
    assert "many-2" in names_in(await person.see(f"/jobs?open={record.uid}"))
    text = await person.see("/jobs/physics/many")
    assert "1 succeeded, 1 failed, 1 active, 5 not started, 0 cancelled of 8" in text
    assert "8 elements, at most 2 at once" in text
    table = text[text.index("Table of elements") :]
    assert re.findall(r'data-phase="(\w+)"', table)[:3] == ["Succeeded", "Failed", "Running"]


async def test_the_selected_are_cancelled_or_deleted(api: RunningApi, person: Person) -> None:
    for name in ("a", "b", "c"):
        await api.create_job(name, phase="Running" if name != "c" else "Succeeded")
    await experiment(api, "compare", phase="Running")
    text = await person.see("/jobs?sort=name&q=")
    assert re.findall(r'name="job" value="([^"]+)"', text) == [
        "jobs/physics/a", "jobs/physics/b", "jobs/physics/c", "experiments/physics/compare"
    ]  # fmt: skip
    assert 'data-ask="Cancel the selected jobs?"' in text
    chosen = "jobs/physics/a\r\njobs/physics/gone\r\njobs/physics/c\r\nexperiments/physics/compare"
    answer = await person.send("/jobs/cancel", job=chosen, back="/console/jobs?sort=name")
    assert answer.headers["location"] == "/console/jobs?sort=name"
    store = api.context.store
    for kind, name, intent in (("Job", "a", "Cancel"), ("Job", "b", "Run"), ("Experiment", "compare", "Cancel")):
        assert (await store.get(Key(kind, "physics", name))).obj["spec"]["intent"] == intent, name
    outside = await person.send("/jobs/delete", job="jobs/physics/c", back="https://evil.example/")
    assert outside.headers["location"] == "/console/"
    await person.see("/jobs/physics/c", 404)
    assert (await person.send("/jobs/cancel", job="tokens/physics/x")).status_code == 422
    assert (await person.send("/jobs/explode", job="jobs/physics/a")).status_code == 404


async def test_what_one_may_not_change_cannot_be_selected(api: RunningApi) -> None:
    await api.create_job("a", phase="Running")
    viewer = Person(api)
    await viewer.sign_in("viewer")
    assert 'name="job"' not in await viewer.see("/jobs")
    assert (await viewer.send("/jobs/cancel", job="jobs/physics/a")).status_code == 403
    await viewer.http.aclose()


async def test_counts_are_shown_only_where_they_agree_with_the_rows(api: RunningApi, person: Person) -> None:
    await api.create_job("a", phase="Running")
    await api.create_job("b", phase="Running")
    assert "Running <span>2</span>" in await person.see("/jobs")
    assert "Running <span>" not in await person.see("/jobs?q=a")


async def test_reasons_are_a_headline_and_a_list_that_unfolds(api: RunningApi, person: Person) -> None:
    why = "no site can run this job: local has 2 CPUs, the job asks for 512"
    message = f"{why}. local: it has 2 CPUs, the job asks for 512; far: not among the sites asked for (local)"
    await api.create_job("large", phase="Pending", reason="NoSiteFits", message=message)
    for path in ("/", "/jobs"):
        text = await person.see(path)
        assert why in text, path
        assert "not among the sites" not in text, f"{path}: what was excluded on purpose is not in the way"
    text = await person.see("/jobs/physics/large")
    notice = text[text.index("Why it waits") : text.index('data-live="facts"')]
    assert "<summary>2 sites</summary>" in notice
    assert re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)", notice) == [
        ("local", "it has 2 CPUs, the job asks for 512"),
        ("far", "not among the sites asked for (local)"),
    ]


async def test_a_long_reason_is_cut_between_words(api: RunningApi, person: Person) -> None:
    await api.create_job("long", phase="Failed", message="unbelievable " * 40)
    text = await person.see("/")
    assert re.search(r"unbelievable …</span>", text)


async def test_a_failed_job_shows_its_standard_error(api: RunningApi, person: Person) -> None:
    await api.create_job("both", {"command": ["x"], "streams": "Separate"}, phase="Failed", exitCode=1)
    await api.create_job("one", {"command": ["x"]}, phase="Failed", exitCode=1)
    both, one = await person.see("/jobs/physics/both"), await person.see("/jobs/physics/one")
    assert re.findall(r'data-stream="(\w+)"', both) == ["stdout", "stderr"]
    assert re.findall(r'data-stream="(\w+)"', one) == ["stdout"]
    assert both.index('id="log"') < both.index(">Details<"), "the log comes first"
    assert "$ x" in both


async def test_cancelling_asks_first(api: RunningApi, person: Person) -> None:
    await api.create_job("a", phase="Running", startedAt="2026-01-01T00:00:00Z")
    await experiment(api, "compare", phase="Running")
    for path, title in (("/jobs/physics/a", "Cancel a?"), ("/experiments/physics/compare", "Cancel compare?")):
        form = re.search(r'<form[^>]*/cancel"[^>]*>', await person.see(path))
        assert form
        assert f'data-ask="{title}"' in form[0]
