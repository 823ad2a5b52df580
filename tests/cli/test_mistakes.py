"""Mistakes that were made by people who tried it: each is reported at once, and changes nothing."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus.api.requests import forbidden
from isthmus.cli.jobs.run_words import current_spellings, ours_first
from isthmus.cli.jobs.running import check_there, what_to_run
from isthmus.client.config import find_access
from isthmus.client.experiments import experiment_manifest
from isthmus.client.jobs import JobOptions, job_manifest
from isthmus.client.kubeconfigs import Access, write_access
from isthmus.client.sync import Client
from isthmus.errors import Invalid, NotFound
from isthmus.identity.callers import Caller
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB
from isthmus.resources.tenants import Role


def is_script(word: str) -> bool:
    return word.endswith(".sh")


@pytest.mark.parametrize(
    ("words", "read", "moved"),
    [
        (["job.sh", "--site", "x", "a"], ["--site", "x", "--", "job.sh", "a"], ["--site", "x"]),
        (["-c", "2", "job.sh", "a", "-d"], ["-c", "2", "-d", "--", "job.sh", "a"], ["-d"]),
        (["job.sh", "--site=x", "--", "--name", "n"], ["--site=x", "--", "job.sh", "--name", "n"], ["--site=x"]),
        (["--", "job.sh", "--site", "x"], ["--", "job.sh", "--site", "x"], []),
        (["job.sh", "--", "--site", "x"], ["job.sh", "--", "--site", "x"], []),
        (["job.sh", "--epochs", "3"], ["job.sh", "--epochs", "3"], []),
        (["python", "job.sh", "--name", "n"], ["python", "job.sh", "--name", "n"], []),
        (["--name", "job.sh", "true", "--site", "x"], ["--name", "job.sh", "true", "--site", "x"], []),
        ([], [], []),
    ],
)
def test_options_behind_a_script_are_ours(words: list[str], read: list[str], moved: list[str]) -> None:
    assert ours_first(words, is_script) == (read, moved)


@pytest.mark.parametrize(
    ("option", "meant"),
    [("memroy", "'memory'"), ("cpu", "'cpus'"), ("device", "'devices'"), ("nonsense", "the options are")],
)
def test_an_unknown_argument_is_refused_with_a_proposal(option: str, meant: str) -> None:
    options: Any = {option: "4"}
    with pytest.raises(TypeError, match=meant):
        job_manifest(["true"], None, None, options)
    with pytest.raises(TypeError, match=option):
        experiment_manifest(["true"], None, None, options)


def test_the_tenant_of_one_token_is_not_assumed_for_another(tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    file = tmp_path / "isthmus" / "kubeconfig"
    write_access(file, Access("http://127.0.0.1:1", "ist_admin_x", "default", None), "isthmus")
    assert find_access(environment=env).namespace == "default"
    other = find_access(environment={**env, "ISTHMUS_TOKEN": "ist_member_y"})
    assert (other.token, other.namespace) == ("ist_member_y", None)
    assert find_access(environment={**env, "ISTHMUS_TOKEN": "ist_admin_x"}).namespace == "default"
    named = find_access(environment={**env, "ISTHMUS_TOKEN": "ist_member_y", "ISTHMUS_NAMESPACE": "physics"})
    assert named.namespace == "physics"


@pytest.mark.real
def test_names_that_do_not_exist_are_reported_before_the_job_is_sent(isthmus: Any, work: Path) -> None:
    for words, reported in (
        (("--site", "locl"), "did you mean local?"),
        (("--device", "akdia"), "there is no device class akdia"),
        (("--after", "nosuchjob"), "there is no job nosuchjob"),
        (("--from", "nosuchjob"), "there is no job nosuchjob"),
    ):
        done = isthmus("run", "-d", "--no-files", *words, "--", "true")
        assert (done.returncode, reported in done.stderr) == (3, True), done.stderr
        assert "--force" in done.stderr
    compared = isthmus("compare", "-d", "--no-files", "--devices", "cpu,akdia", "--", "true")
    assert (compared.returncode, "no device class akdia" in compared.stderr) == (3, True), compared.stderr
    (work / "job.yaml").write_text(
        json.dumps({
            "apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": "lost"},
            "spec": {"command": ["true"], "placement": {"sites": ["locl"]}},
        })
    )  # fmt: skip
    assert isthmus("submit", "job.yaml").returncode == 3
    assert isthmus("get", "job", "lost").returncode == 3
    forced = isthmus("submit", "--force", "job.yaml")
    assert forced.returncode == 0, forced.stderr
    assert isthmus("delete", "job", "lost").returncode == 0


@pytest.mark.real
def test_the_python_client_refuses_names_that_do_not_exist(server: Any) -> None:
    with Client(server.url, server.token) as client:
        for options, reported in (
            (JobOptions(sites=["locl"]), "no site locl; did you mean local"),
            (JobOptions(devices={"akdia": 1}), "no device class akdia"),
            (JobOptions(after=["nosuchjob"]), "no job nosuchjob"),
        ):
            with pytest.raises(NotFound, match=f"{reported}.*force=True"):
                client.run(["true"], files=None, **options)
        with pytest.raises(NotFound, match="no device class akdia"):
            client.compare(["true"], files=None, devices=["cpu", "akdia"])
        client.run(["true"], files=None, sites=["locl"], force=True).delete()


@pytest.mark.real
def test_what_no_site_could_use_is_refused_when_it_is_submitted(isthmus: Any) -> None:
    for words, field, reported in (
        (("run", "--image", "UPPER CASE!!"), "spec.image", "it must hold no spaces"),
        (("run", "--image", "Upper"), "spec.image", "lower-case letters"),
        (("run", "--where", "price < cheap"), "spec.placement.expression", "no number"),
        (("plan", "--where", "price < cheap"), "spec.placement.expression", "no number"),
        (("compare", "--images", "python:3.12,a b"), "spec.matrix.images[1]", "no spaces"),
        (("compare", "--where", "price < cheap"), "spec.template.placement.expression", "no number"),
    ):
        done = isthmus(*words, "--no-files", "--", "true")
        assert done.returncode == 2, done.stderr
        assert field in done.stderr
        assert reported in done.stderr


@pytest.mark.real
def test_a_plan_takes_what_run_takes(isthmus: Any) -> None:
    for words in (("--", "true"), ("--site", "any", "--", "true"), ("--site", "any", "true")):
        done = isthmus("plan", "--no-files", *words)
        assert (done.returncode, "local has room now" in done.stdout) == (0, True), done.stderr
    done = isthmus("plan", "nosuchjob")
    assert (done.returncode, "isthmus plan -- nosuchjob" in done.stderr) == (3, True), done.stderr


@pytest.mark.real
def test_a_detached_job_that_no_site_can_run_says_so_at_once(isthmus: Any) -> None:
    for words in (("--cpus", "90000"), ("--nodes", "2"), ("--site", "locl", "--force")):
        done = isthmus("run", "-d", "--no-files", *words, "--", "true")
        assert done.returncode == 0, done.stderr
        assert "no site can run this job: " in done.stderr
        assert isthmus("cancel", done.stdout.strip()).returncode == 0


@pytest.mark.real
def test_what_is_wrong_with_one_object_does_not_spare_the_others(isthmus: Any, work: Path) -> None:
    def manifest(name: str, **spec: Any) -> dict[str, Any]:
        return {**job({"command": ["true"], **spec}), "metadata": {"name": name}}

    wrong = [manifest("wrong-one", priority="x"), manifest("wrong-two", nosuch=1)]
    objects = [manifest("before"), *wrong, manifest("after")]
    (work / "all.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
    done = isthmus("apply", "-f", "all.yaml")
    assert (done.returncode, done.stdout) == (2, "job/before created\njob/after created\n"), done.stderr
    assert "wrong-one" in done.stderr
    assert "wrong-two" in done.stderr
    done = isthmus("delete", "-f", "all.yaml")
    assert (done.returncode, done.stdout) == (3, "job/before deleted\njob/after deleted\n"), done.stderr
    assert "wrong-one" in done.stderr
    assert "wrong-two" in done.stderr


def test_who_may_not_is_told_whom_to_ask() -> None:
    member = Caller("bob", {"physics": Role.MEMBER})
    assert "your role is in physics; ask an admin of the tenant" in forbidden(member, "list", "jobs", "optics").message
    assert "your role" not in forbidden(member, "list", "tokens", "physics").message
    assert forbidden(member, "delete", "sites", "", "local").message.endswith("ask a platform admin")


@pytest.mark.real
def test_hints_name_the_tenant_that_was_named(isthmus: Any) -> None:
    done = isthmus("run", "-n", "default", "-d", "--no-files", "--", "true")
    assert done.returncode == 0, done.stderr
    assert f"isthmus logs -f {done.stdout.strip()} -n default" in done.stderr


@pytest.mark.real
def test_options_of_ours_behind_the_script_are_honoured_and_said(isthmus: Any, work: Path) -> None:
    (work / "job.sh").write_text("echo got $*\n")
    done = isthmus("run", "job.sh", "a", "--name", "mine", "--epochs", "3")
    assert done.stdout == "got a --epochs 3\n", done.stderr
    assert "--name mine was read by isthmus run" in done.stderr
    assert isthmus("job", "mine").returncode == 0


def test_a_binary_file_is_no_token(offline: Any, work: Path) -> None:
    (work / "token").write_bytes(bytes(range(128, 256)))
    done = offline("login", "--url", "http://127.0.0.1:1", "--token-file", "token")
    assert done.returncode == 2
    assert "does not hold a token" in done.stderr


@pytest.mark.real
def test_a_missing_file_is_a_wrong_word(isthmus: Any) -> None:
    assert isthmus("submit", "nosuch.yaml").returncode == 2


def test_old_names_of_options_are_understood_with_a_hint() -> None:
    words, hints = current_spellings(["--keep=a", "--state", "s/*", "true", "--keep", "x"])
    assert words == ["--outputs=a", "--checkpoint", "s/*", "true", "--keep", "x"]
    assert ["--outputs" in hints[0], "--checkpoint" in hints[1], len(hints)] == [True, True, 2]
    assert current_spellings(["--", "--keep"]) == (["--", "--keep"], [])


def job(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}


def test_the_former_name_of_a_checkpoint_is_read() -> None:
    read = validate(JOB, job({"command": ["true"], "restartable": {"keep": ["state/*"]}}))
    assert read["spec"]["restartable"] == {"checkpoint": ["state/*"], "grace": "30s"}


@pytest.mark.parametrize(
    ("spec", "reported"),
    [
        ({"command": "echo hi"}, "spec.command: must be a list, not the text 'echo hi'; write [echo, hi]"),
        ({"command": ["a"], "retries": "3"}, "write {limit: 3}"),
        (
            {"command": ["a"], "env": {"A": "b"}},
            "spec.env: must be a list of maps with the fields name, value, not a map",
        ),
        ({"command": ["a"], "streams": "Both"}, "must be Merged or Separate, not 'Both'"),
        ({"command": ["a"], "priority": 1.5}, "must be a whole number, not 1.5"),
        ({"command": ["a"], "resources": {"nodes": 0}}, "must be at least 1, not 0"),
        ({"command": ["a"], "resources": {"timeLimit": "0s"}}, "must be more than 0"),
        ({"command": ["a"], "outputs": ["x"] * 300}, "has 300 entries; 256 are allowed"),
    ],
)
def test_wrong_values_are_explained_in_the_words_of_the_manifest(spec: dict[str, Any], reported: str) -> None:
    with pytest.raises(Invalid) as caught:
        validate(JOB, job(spec))
    assert reported in caught.value.message
    assert "Input should" not in caught.value.message


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_does_not_answer_is_named(scheme: str, environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"{scheme}://127.0.0.1:{deaf.getsockname()[1]}"
        words = [sys.executable, "-m", "isthmus.cli", "jobs", "--url", url, "--token", "ist_a_b"]
        with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "has not answered yet" in process.stderr.readline()
            process.kill()


def test_what_can_only_be_a_file_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").touch()
    for word in ("job.sh", "python3", "./run.sh", "/opt/run.py"):
        check_there(word)
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(Invalid, match=r"folder\.py is a folder"):
        check_there("folder.py")
    for word in ("jbo.sh", "train.py", "task.yaml", "task.json"):
        with pytest.raises(NotFound, match=f"there is no file {word} here"):
            check_there(word)


def test_a_script_in_a_folder_is_a_script_unless_it_is_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    for name in ("train.py", "job.sh", "simulate"):
        (tmp_path / "scripts" / name).write_text("echo $*\n")
    assert what_to_run(("scripts/job.sh", "a"), here=True) == (None, "echo $*\n", ["a"])
    assert what_to_run(("scripts/train.py", "a"), here=True) == (["python3", "scripts/train.py", "a"], None, [])
    assert what_to_run(("./scripts/simulate",), here=True) == (["./scripts/simulate"], None, [])
    (tmp_path / "scripts" / "job.sh").chmod(0o755)
    assert what_to_run(("scripts/job.sh", "a"), here=True) == (["scripts/job.sh", "a"], None, [])


def test_a_misspelt_kind_is_reported_with_a_proposal(offline: Any) -> None:
    done = offline("get", "jbos", "--url", "http://127.0.0.1:1", "--token", "ist_a_b")
    assert (done.returncode, "did you mean jobs?" in done.stderr) == (3, True), done.stderr


def test_wrong_values_are_explained_without_words_of_a_model(offline: Any) -> None:
    for words, told in (
        (("logs", "x", "--tail", "y"), "it must be a whole number"),
        (("run", "--gpus", "-1", "true"), "it must be at least 1"),
        (("jobs", "-o", "nosuch"), "'nosuch' is not one of"),
    ):
        said = offline(*words)
        assert (said.returncode, told in said.stderr) == (2, True), said.stderr
        assert "Input should" not in said.stderr
        assert "Value error" not in said.stderr


@pytest.mark.parametrize(
    ("spec", "field", "reported"),
    [
        ({"env": {"A": "b"}}, "spec.env", "write [{name: A, value: b}]"),
        ({"env": ["A=b"]}, "spec.env[0]", "write {name: A, value: b}"),
        ({"resources": {"devices": "akida"}}, "spec.resources.devices", "write [{class: akida}]"),
        ({"resources": {"gpus": 1}}, "spec.resources.gpus", "GPUs are devices"),
        ({"gpus": 1}, "spec.gpus", "GPUs are devices"),
        ({"placement": "local"}, "spec.placement", "write {sites: [local]}"),
        ({"restartable": True}, "spec.restartable", "write {}"),
        ({"command": [True]}, "spec.command[0]", "write it in quotes: 'true'"),
        ({"lateCostPerHour": -1}, "spec.lateCostPerHour", "must be at least 0, not -1"),
        ({"array": {"indices": "9-0"}}, "spec.array.indices", "write the smaller number first"),
    ],
)
def test_a_proposal_is_one_that_would_be_accepted(spec: dict[str, Any], field: str, reported: str) -> None:
    with pytest.raises(Invalid) as caught:
        validate(JOB, job({"command": ["true"], **spec}))
    assert [cause.field for cause in caught.value.causes] == [field]
    assert reported in caught.value.message


def test_nothing_is_proposed_where_nothing_is_likely() -> None:
    with pytest.raises(Invalid) as caught:
        validate(JOB, job({"command": ["true"], "files": "."}))
    assert "write" not in caught.value.message


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("agent", "join", "https://127.0.0.1:1", "rubbish"), "that is no invitation"),
        (("agent", "join", "ftp://x", "isi_a_b"), "must begin with https://"),
        (("agents", "invite", "--name", "x", "--expires", "0s"), "leaves no time to join"),
        (("registry", "login", "ghcr.io", "-u", "ada", "--password-stdin"), "no password was given; write it to"),
    ],
)
def test_what_cannot_be_meant_is_said_before_any_server_is_asked(
    offline: Any, words: tuple[str, ...], reported: str
) -> None:
    done = offline(*words)
    assert (done.returncode, reported in done.stderr) == (2, True), done.stderr


@pytest.mark.real
def test_names_of_sites_and_elements_are_checked_everywhere(isthmus: Any) -> None:
    for words, reported in (
        (("images", "--site", "locl"), "did you mean local?"),
        (("images", "pull", "python:3.12", "--site", "locl"), "did you mean local?"),
        (("rerun", "sweep/7"), "an element of an array is ARRAY-INDEX"),
    ):
        done = isthmus(*words)
        assert (done.returncode, reported in done.stderr) == (3, True), done.stderr


@pytest.mark.real
def test_who_reads_sees_all_tenants_that_are_hers_and_is_told_the_role_that_she_lacks(
    isthmus: Any,
) -> None:
    made = isthmus("token", "create", "vic", "--role", "viewer", "-n", "default")
    assert made.returncode == 0, made.stderr
    env = {"ISTHMUS_TOKEN": made.stdout.strip()}
    listed = isthmus("jobs", "-A", "-o", "name", env=env)
    assert listed.returncode == 0, listed.stderr
    done = isthmus("compare", "-p", "x=1", "--", "true", env=env)
    assert (done.returncode, "running an experiment takes the role member" in done.stderr) == (4, True), done.stderr
