"""From words to a Job that the server accepts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from isthmus.client.handles import JobFacts, exit_code_of
from isthmus.client.jobs import JobOptions, copied, devices_of, job_manifest, name_for
from isthmus.errors import Invalid
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import KINDS


def accepted(manifest: dict[str, Any]) -> dict[str, Any]:
    manifest["metadata"].setdefault("name", "x")
    return validate(KINDS["Job"], manifest)


def test_all_options_together_are_accepted_by_the_model() -> None:
    options = JobOptions(
        name="train",
        env={"A": "1"},
        outputs=["out/*.csv"],
        cpus=2.5,
        memory="4Gi",
        devices={"akida": 2},
        nodes=2,
        tasks=3,
        time_limit="1h",
        array="0-9%3",
        after=["prep", "other:finished"],
        retries=2,
        priority=7,
        deadline="2030-01-01T00:00:00Z",
        sites=["local"],
        where="price < 2",
        labels={"project": "mri"},
        separate=True,
        ttl="7d",
    )
    files = {"tree": "sha256:" + "0" * 64, "count": 2, "bytes": 5}
    spec = accepted(job_manifest(["python", "x.py"], None, files, options))["spec"]
    assert spec["resources"] == {
        "cpus": "2.5", "memory": "4Gi", "devices": [{"class": "akida", "count": 2}],
        "nodes": 2, "tasks": 3, "timeLimit": "1h",
    }  # fmt: skip
    assert spec["array"] == {"indices": "0-9", "limit": 3}
    assert spec["dependencies"] == [
        {"job": "prep", "condition": "Succeeded"},
        {"job": "other", "condition": "Finished"},
    ]
    assert spec["placement"]["sites"] == ["local"]
    assert spec["placement"]["expression"] == "price < 2"
    assert (spec["streams"], spec["priority"], spec["ttlAfterFinished"]) == ("Separate", 7, "7d")
    assert spec["files"] == files


def test_what_is_not_said_is_left_to_the_server() -> None:
    assert job_manifest(["true"], None, None, {})["spec"] == {"command": ["true"]}
    assert job_manifest(["true"], None, {"tree": "", "count": 0, "bytes": 0}, {})["spec"] == {"command": ["true"]}


def test_a_text_is_split_like_a_shell_does_and_a_script_is_kept() -> None:
    assert job_manifest("echo 'a b' c", None, None, {})["spec"]["command"] == ["echo", "a b", "c"]
    spec = accepted(job_manifest(None, "#!/bin/sh\necho $1\n", None, {"args": ["x"]}))["spec"]
    assert (spec["script"], spec["args"]) == ("#!/bin/sh\necho $1\n", ["x"])


def test_neither_or_both_are_refused() -> None:
    for command, script in ((None, None), (["true"], "true")):
        with pytest.raises(Invalid, match="either a command"):
            job_manifest(command, script, None, {})


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "train.py"], "train"),
        (["/usr/bin/python3.11", "-u", "src/Train_Model.py"], "train-model"),
        (["./simulate", "--x"], "simulate"),
        (["bash", "-c", "echo hi; exit 3"], "job"),
        (["env", "A=1", "make"], "make"),
        (["true"], "true"),
        (["---"], "job"),
        (["x" * 300], "x" * 40),
    ],
)
def test_names(words: list[str], name: str) -> None:
    assert name_for(words) == name


@pytest.mark.parametrize("text", [":2", "akida:", "akida:x", "akida:-1"])
def test_devices_that_cannot_be_read(text: str) -> None:
    with pytest.raises(Invalid, match="akida:2"):
        devices_of([text])


def test_outputs_of_other_jobs_join_what_is_waited_for() -> None:
    options = JobOptions(after=["prep:finished"], outputs_of=["prep", "sim:data"])
    waits = job_manifest(["true"], None, None, options)["spec"]["dependencies"]
    assert waits == [
        {"job": "prep", "condition": "Finished", "outputsInto": "."},
        {"job": "sim", "condition": "Succeeded", "outputsInto": "data"},
    ]


@pytest.mark.parametrize("options", [JobOptions(array="0-9%x"), JobOptions(after=["a:maybe"])])
def test_words_that_cannot_be_read(options: JobOptions) -> None:
    with pytest.raises(Invalid):
        job_manifest(["true"], None, None, options)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"phase": "Succeeded", "exitCode": 0}, 0),
        ({"phase": "Failed", "exitCode": 3}, 3),
        ({"phase": "Failed", "signal": "SIGKILL"}, 137),
        ({"phase": "Failed", "signal": "SIGRTMIN+3"}, 1),
        ({"phase": "Failed", "reason": "TimeLimit", "signal": "SIGTERM"}, 124),
        ({"phase": "Failed", "reason": "StartFailed"}, 125),
        ({"phase": "Failed", "array": {"failed": 2}}, 1),
        ({"phase": "Failed", "exitCode": 0}, 1),
        ({"phase": "Cancelled", "exitCode": 0}, 130),
    ],
)
def test_exit_codes(status: dict[str, Any], code: int) -> None:
    assert exit_code_of({"status": status}) == code


def test_facts_of_a_job() -> None:
    facts = JobFacts({"metadata": {"name": "a", "namespace": "lab"}, "status": {"phase": "Running"}})
    assert (facts.name, facts.namespace, facts.phase, facts.finished, facts.exit_code) == (
        "a",
        "lab",
        "Running",
        False,
        None,
    )
    assert repr(facts) == "<JobFacts lab/a Running>"
    assert JobFacts({"metadata": {"name": "a"}}).phase == "Pending"


def test_a_copy_has_the_name_of_the_first_and_a_new_ending() -> None:
    spec = {"command": ["true"], "deadline": "2026-12-24T17:00:00Z", "intent": "Cancel"}
    for name, stem in [("train-x7k2p", "train"), ("train-model", "train-model"), ("a" * 253, "a" * 247)]:
        made = copied({"kind": "Job", "metadata": {"name": name}, "spec": spec})
        assert re.fullmatch(rf"{stem}-[a-z0-9]{{5}}", made["metadata"]["name"])
        assert made["spec"] == {"command": ["true"]}
    assert copied({"metadata": {"name": "x"}, "spec": spec}, "x")["spec"]["deadline"] == spec["deadline"]


def test_a_text_where_several_may_be_given_is_one_of_them() -> None:
    options: JobOptions = {"outputs": "out/*", "sites": "local", "after": "train", "expect": "1h", "checkpoint": "s/*"}
    spec = job_manifest(["true"], None, None, options)["spec"]
    assert (spec["outputs"], spec["placement"]) == (["out/*"], {"sites": ["local"]})
    assert spec["dependencies"] == [{"job": "train", "condition": "Succeeded"}]
    assert (spec["profile"], spec["restartable"]) == ([{"duration": "1h"}], {"checkpoint": ["s/*"]})


@pytest.mark.parametrize("wrong", [{"env": ["A=1"]}, {"labels": "team=vision"}, {"outputs": 7}, {"sites": {"a": 1}}])
def test_options_of_another_kind_are_refused_in_words(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(wrong))} must be a"):
        job_manifest(["true"], None, None, wrong)


def test_a_copy_of_an_element_keeps_its_index() -> None:
    labels = {"isthmus.dev/array": "sweep", "isthmus.dev/array-index": "7", "team": "vision"}
    made = copied({"kind": "Job", "metadata": {"name": "sweep-7", "labels": labels}, "spec": {"command": ["true"]}})
    assert made["spec"] == {"command": ["true"], "array": {"indices": "7"}}
    assert made["metadata"]["labels"] == {"team": "vision"}
