"""Submitting: the form of a job and of an experiment, copies that fill it again, and the editor that checks lines."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.client.jobs import copied
from isthmus.console.manifests import at_fields, from_form, lines_of, to_form
from isthmus.console.rendering import as_yaml
from isthmus.errors import Cause, Invalid
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import EXPERIMENT, JOB
from isthmus.testing.apis import RunningApi

from .conftest import Person

FULL = {
    "what": "command",
    "metadata.name": "train",
    "metadata.namespace": "physics",
    "metadata.labels": "team=vision",
    "spec.command": "python3 'my script.py' --rate 0.1",
    "spec.env": "A=1\nB=x=y",
    "spec.outputs": "out/*.csv",
    "spec.resources.cpus": "2",
    "spec.resources.memory": "2Gi",
    "spec.resources.devices": "akida",
    "device-count": "2",
    "spec.array.indices": "0-9",
    "spec.array.limit": "3",
    "spec.retries.limit": "2",
    "spec.priority": "-3",
    "spec.placement.sites": "local hpc",
    "spec.streams": "Separate",
    "spec.deadline": "2026-12-24T18:00",
    "spec.dependencies": "first, second",
    "dependency-condition": "Finished",
}


def job(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest as the server keeps it."""
    found: dict[str, Any] = validate(JOB, manifest)
    return found


def test_deadline_and_dependencies_are_in_the_form() -> None:
    made = from_form({**FULL, "zone": "-60"})["spec"]
    assert made["deadline"] == "2026-12-24T17:00:00.000Z", "a time of the browser, an hour before UTC"
    assert made["dependencies"] == [
        {"job": "first", "condition": "Finished"},
        {"job": "second", "condition": "Finished"},
    ]
    assert made["streams"] == "Separate"
    job(from_form(FULL))
    with pytest.raises(Invalid) as caught:
        from_form({**FULL, "spec.deadline": "tomorrow"})
    assert list(at_fields(caught.value.causes)[0]) == ["spec.deadline"]


@pytest.mark.parametrize("deadline", ["9999-12-31T23:59", "0001-01-01T00:00", "2026-12-24T18:00:00+09:00"])
def test_odd_deadlines_are_read_or_refused(deadline: str) -> None:
    for zone in ("-9999", "9999", "x" * 1000):
        with contextlib.suppress(Invalid):
            made = from_form({**FULL, "spec.deadline": deadline, "zone": zone})
            assert made["spec"]["deadline"].endswith("Z")


def test_an_experiment_has_a_form() -> None:
    fields = {
        "kind": "Experiment",
        "spec.script": "#!/bin/sh\necho $PARAM_rate\n",
        "spec.resources.cpus": "1",
        "spec.matrix.devices": "cpu\nakida",
        "spec.parameters": "rate=0.1, 0.2\nmodel = small",
        "spec.repetitions": "3",
        "spec.objective": "energy",
    }
    made = from_form(fields)
    assert (made["kind"], made["metadata"]) == ("Experiment", {"generateName": "experiment-"})
    assert made["spec"]["template"]["resources"] == {"cpus": "1"}
    assert made["spec"]["matrix"] == {"devices": ["cpu", "akida"]}
    assert made["spec"]["parameters"] == [
        {"name": "rate", "values": ["0.1", "0.2"]},
        {"name": "model", "values": ["small"]},
    ]
    assert made["spec"]["objective"] == {"value": "energy", "goal": "Minimize"}
    validate(EXPERIMENT, {**made, "metadata": {"name": "x", "namespace": "physics"}})
    assert at_fields([Cause("spec.template.resources.cpus", "a")])[0] == {"spec.resources.cpus": "a"}


def test_a_copy_fills_the_form_again() -> None:
    kept = job(from_form(FULL))
    fields = to_form(copied(kept, "train"))
    assert fields is not None
    assert job(from_form(fields))["spec"] == kept["spec"]
    assert fields["spec.dependencies"] == "first second"


@given(st.text(min_size=1), st.text())
def test_what_a_copy_says_is_what_was_run(word: str, value: str) -> None:
    try:
        kept = job(
            {
                "metadata": {"name": "a", "namespace": "physics"},
                "spec": {"command": ["sh", "-c", word], "env": [{"name": "A", "value": value}]},
            }
        )
    except Invalid:
        return
    fields = to_form(kept)
    assert fields is None or job(from_form(fields))["spec"] == kept["spec"], "else the manifest is shown"


def test_what_the_form_cannot_say_is_a_manifest() -> None:
    for more in ({"slurm": {"partition": "long"}}, {"args": ["x"], "script": "#!/bin/sh\n", "command": None}):
        spec = {"command": ["true"], **more}
        assert to_form(job({"metadata": {"name": "a", "namespace": "physics"}, "spec": spec})) is None


def test_problems_have_lines() -> None:
    text = as_yaml(from_form(FULL))
    paths = ["spec.resources.devices[0].class", "spec.env[1].name", "spec.nonsense.deep", "", "metadata.name"]
    lines = text.splitlines()
    found = [lines[line - 1].strip() for line in lines_of(text, paths)]
    assert found == ["- class: akida", "- name: B", "spec:", "apiVersion: isthmus.dev/v1", "name: train"]
    assert lines_of("a: [", ["a"]) == [1]
    assert lines_of("- 1\n- 2\n", ["[1]", "[7]", "x"]) == [2, 1, 1]


@pytest.mark.anyio
async def test_the_editor_is_checked_as_somebody_types(person: Person) -> None:
    async def problems(text: str) -> list[tuple[int, str]]:
        reported = (await person.send("/submit/manifest", mode="manifest", manifest=text)).json()
        return [(one["line"], one["field"]) for one in reported["lines"]]

    good = "kind: Job\nmetadata: {name: typed, namespace: physics}\nspec:\n  command: ['true']\n"
    assert await problems(good) == []
    assert await problems(f"{good}  priority: high\n") == [(5, "spec.priority")]
    assert await problems(f"{good}  prioritty: 1\n") == [(5, "spec.prioritty")]
    assert await problems("kind: Site\n") == [(1, "kind")]
    assert await problems("kind: Job\nspec: [\n") == [(3, "")], "where the YAML breaks"
    assert (await problems("- 1"))[0][0] == 1
    assert await problems("a: &a [*a]") != []
    assert (await person.see("/jobs")).count("typed") == 0, "nothing was created"


@pytest.mark.anyio
async def test_new_experiment_opens_a_form_and_makes_one(api: RunningApi, person: Person) -> None:
    assert 'href="/console/submit?kind=Experiment">New experiment' in await person.see("/experiments")
    text = await person.see("/submit?kind=Experiment")
    assert "New experiment</h1>" in text
    assert 'name="spec.parameters"' in text
    fields = {"spec.command": "echo {n}", "spec.parameters": "n=1, 2", "metadata.name": "made"}
    shared = {"mode": "form", "kind": "Experiment", "what": "command", "metadata.namespace": "physics"}
    answer = await person.send("/submit", **shared, **fields)
    assert answer.headers["location"] == "/console/experiments/physics/made"
    wrong = await person.send("/submit", **shared, **{**fields, "spec.parameters": "1n=1"})
    assert wrong.status_code == 422
    assert re.search(r'data-problem="spec.parameters">[^<]+', wrong.text)
    assert "New experiment</h1>" in wrong.text
    copy = await person.see("/submit?kind=Experiment&copy=physics/made")
    assert "kind: Experiment" in copy


@pytest.mark.anyio
async def test_recent_jobs_are_offered_as_copies(api: RunningApi, person: Person) -> None:
    await api.create_job("earlier", {"command": ["echo", "again please"]}, phase="Succeeded")
    text = await person.see("/submit")
    assert 'href="/console/submit?copy=physics%2Fearlier">earlier</a>' in text
    copy = await person.see("/submit?copy=physics/earlier")
    assert """value="echo 'again please'\"""" in copy, "in the form, where the form can say it"
    stranger = Person(api)
    await stranger.sign_in("stranger")
    assert "earlier" not in await stranger.see("/submit")
    await stranger.http.aclose()
