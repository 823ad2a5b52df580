"""Input made to hurt, through the whole server: a clear refusal, and nothing else is disturbed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus.testing.servers import GROUP, ServerProcess, eventually

from .conftest import Answer, ask, memory_of

pytestmark = pytest.mark.real

FILES = f"{GROUP}/namespaces/default/files"


def job(name: str = "job", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"command": ["true"], **spec},
    }


def test_a_manifest_of_ten_megabytes_is_refused_and_costs_little(server: ServerProcess) -> None:
    before = memory_of(server)
    big = job(env=[{"name": "A", "value": "x" * 10 * 2**20}])
    for kind in ("application/json", "application/yaml"):
        answer = ask(server, "POST", server.jobs(), json.dumps(big).encode(), Content_Type=kind)
        assert answer.code == 413
        assert answer.object["reason"] == "RequestEntityTooLarge"
    assert memory_of(server) < before + 60


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_a_manifest_nested_deeply_is_refused(server: ServerProcess, depth: int) -> None:
    inner = '{"a":' * depth + "1" + "}" * depth
    body = json.dumps(job()).replace('"metadata": {', f'"metadata": {{"x": {inner}, ')
    assert ask(server, "POST", server.jobs(), body.encode()).code in (400, 422)
    yaml = "spec: " + "[" * depth + "]" * depth
    assert ask(server, "POST", server.jobs(), yaml.encode(), Content_Type="application/yaml").code in (400, 422)
    aliases = "a: &a [1,1,1,1,1,1,1,1]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 8)}]\n" for n in range(20)
    )
    assert ask(server, "POST", server.jobs(), aliases.encode(), Content_Type="application/yaml").code in (400, 422)


@pytest.mark.parametrize("name", ["../up", "a/../../b", "..", ".", "a%2f..%2fb", "A", "a\x00b", "a\nb", "x" * 254, ""])
def test_a_name_that_is_none_is_refused(server: ServerProcess, name: str) -> None:
    assert ask(server, "POST", server.jobs(), job(name)).code in (400, 422)


@pytest.mark.parametrize(
    "path",
    [
        "/apis/isthmus.dev/v1/namespaces/default/jobs/..%2f..%2ftenants",
        "/apis/isthmus.dev/v1/namespaces/../tenants",
        "/apis/isthmus.dev/v1/namespaces/default%2f..%2fother/jobs",
        f"{FILES}/..%2f..%2f..%2f..%2fadmin.token",
        f"{FILES}/../../admin.token",
        f"{FILES}/sha256:..%2f..%2fadmin.token",
        "/apis/isthmus.dev/v1/namespaces/..%2f..%2f/files/sha256:" + "0" * 64,
        "/apis/isthmus.dev/v1/namespaces/default/jobs/..%2fx/log",
        "/apis/isthmus.dev/v1/namespaces/default/jobs/plain/outputs/..%2f..%2f..%2fadmin.token",
        "/apis/isthmus.dev/v1/namespaces/default/jobs/plain/outputs//etc/passwd",
    ],
)
def test_paths_that_lead_out_lead_nowhere(server: ServerProcess, path: str) -> None:
    answer = ask(server, "GET", path)
    assert answer.code in (400, 404, 422)
    assert server.token.encode() not in answer.body


def tree(server: ServerProcess, *files: dict[str, Any]) -> Answer:
    return ask(server, "PUT", f"{FILES}/tree", {"files": list(files)})


def content(server: ServerProcess, data: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert ask(server, "PUT", f"{FILES}/{digest}", data).code == 200
    return {"digest": digest, "size": len(data)}


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", "./a", "a\x00b", "", "x" * 5000])
def test_a_tree_that_leads_out_of_its_folder_is_refused(server: ServerProcess, path: str) -> None:
    data = content(server, b"x")
    assert tree(server, {"path": path, **data}).code == 422
    assert tree(server, {"path": "link", "link": f"../{path}"}).code == 422
    assert tree(server, {"path": "link", "link": "/etc/passwd"}).code == 422
    assert tree(server, {"path": "d", "link": "e"}, {"path": "d/x", **data}).code == 422


def test_a_file_name_that_no_disk_takes_ends_the_job_instead_of_holding_it(server: ServerProcess) -> None:
    answer = tree(server, {"path": "x" * 300, **content(server, b"x")})
    if answer.code == 422:
        return  # refused where the tree is made: just as well
    server.submit("long-name", files={"tree": answer.object["tree"]})
    status = server.finished("long-name")
    assert status["phase"] == "Failed"
    assert "x" * 300 in status["message"]


def test_contents_that_are_not_there_or_no_tree_end_the_job(server: ServerProcess) -> None:
    nothing = "sha256:" + "0" * 64
    for name, digest in (("no-tree", nothing), ("not-a-tree", content(server, b"plain")["digest"])):
        answer = ask(server, "POST", server.jobs(), job(name, files={"tree": digest}))
        if answer.code == 201:
            assert server.finished(name)["reason"] == "FilesMissing"
        else:
            assert answer.code == 422


def test_names_are_taken_once(server: ServerProcess) -> None:
    assert ask(server, "POST", server.jobs(), job("twice", intent="Hold")).code == 201
    again = ask(server, "POST", server.jobs(), job("twice"))
    assert (again.code, again.object["reason"]) == (409, "AlreadyExists")
    ask(server, "DELETE", f"{server.jobs()}/twice")


def test_a_job_that_depends_on_itself_is_refused(server: ServerProcess) -> None:
    answer = ask(server, "POST", server.jobs(), job("selfish", dependencies=[{"job": "selfish"}]))
    assert answer.code == 422
    assert answer.object["details"]["causes"][0]["field"] == "spec.dependencies[0].job"


def test_the_elements_of_an_array_with_a_long_name_are_proper_objects(server: ServerProcess) -> None:
    script = {"command": ["true"], "resources": {"cpus": "0.1"}}
    assert ask(server, "POST", server.jobs(), job("x" * 250, array={"indices": "0-999"})).code == 422
    name = "x" * 62 + "-" + "y" * 180
    body = {"metadata": {"name": name}, "spec": {**script, "array": {"indices": "8-9"}}}
    assert ask(server, "POST", server.jobs(), body).code == 201
    assert server.finished(name)["phase"] == "Succeeded"
    change = {"metadata": {"labels": {"mine": "yes"}}}
    assert ask(server, "PATCH", f"{server.jobs()}/{name}-9", change).code == 200


def test_very_many_jobs_cancelled_and_deleted_at_once(server: ServerProcess) -> None:
    for number in range(200):
        server.submit(f"many-{number}", "sleep", "600", resources={"cpus": "0.1"})
    for number in range(200):
        if number % 2:
            ask(server, "PATCH", f"{server.jobs()}/many-{number}", {"spec": {"intent": "Cancel"}})
        else:
            ask(server, "DELETE", f"{server.jobs()}/many-{number}")

    def over() -> bool:
        items = ask(server, "GET", server.jobs()).object["items"]
        many = [item for item in items if item["metadata"]["name"].startswith("many-")]
        return len(many) == 100 and all(item["status"]["phase"] == "Cancelled" for item in many)

    eventually(over, timeout=90)


# The folder sent along, from the command line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "plain").write_text("content\n")
    return made


def run(server: ServerProcess, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": server.token}
    command = [sys.executable, "-m", "isthmus.cli", "run", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("what", ["outside", "device", "pipe", "circle", "secret"])
def test_a_folder_with_things_that_are_no_files_is_sent_without_them_or_refused(
    server: ServerProcess, folder: Path, what: str
) -> None:
    if what == "outside":
        (folder / "odd").symlink_to("/etc/passwd")
    elif what == "device":
        if os.geteuid() == 0:
            os.mknod(folder / "odd", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero: never ends
        else:
            (folder / "odd").symlink_to("/dev/zero")
    elif what == "pipe":
        os.mkfifo(folder / "odd")
    elif what == "circle":
        (folder / "odd").symlink_to(".")
    else:
        (folder / "odd").symlink_to("../../../../../../etc/shadow")
    done = run(server, folder, "--", "sh", "-c", "cat plain; ls odd")
    assert "root:" not in done.stdout
    if done.returncode == 0:
        assert what == "circle"
    else:
        assert "odd" in done.stderr + done.stdout
