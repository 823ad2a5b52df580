"""Both clients against a server on a real socket that loses replies, drops streams and refuses."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from isthmus import errors
from isthmus.client import AsyncClient, Client
from isthmus.client.flows import MARK
from isthmus.client.kubeconfigs import Access

BASE = "/apis/isthmus.dev/v1/namespaces/lab"
JOB = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"generateName": "t-"}, "spec": {"command": ["true"]}}


class Both:
    """The same calls on either client; a coroutine is run to its end."""

    def __init__(self, kind: str, access: Access) -> None:
        self.kind, self.access = kind, access

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.kind == "sync":
            with Client.at(self.access) as client:
                found = getattr(client, method)(*args, **kwargs)
                return list(found) if hasattr(found, "__next__") else found
        import asyncio

        async def go() -> Any:
            async with AsyncClient.at(self.access) as client:
                found = getattr(client, method)(*args, **kwargs)
                if hasattr(found, "__anext__"):
                    return [item async for item in found]
                return await found

        return asyncio.run(go())


@pytest.fixture(params=["sync", "async"])
def both(request: pytest.FixtureRequest, fake: Any) -> Both:
    return Both(request.param, fake.access)


def test_submits_once_when_the_reply_is_lost(fake: Any, both: Both) -> None:
    lost: list[str] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if method == "POST" and path.endswith("/jobs") and not lost:
            job = json.loads(handler.body)
            lost.append(job["metadata"]["name"])
            fake.put_job(job)
            handler.drop()
        return False

    fake.hooks.append(hook)
    job = both.call("submit", JOB)
    assert list(fake.jobs) == [job.name] == lost
    assert fake.requests("POST", "/jobs") == 1
    assert job.object["metadata"]["annotations"][MARK]


def test_sends_again_when_the_request_was_lost(fake: Any, both: Both) -> None:
    tries: list[str] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if method == "POST" and path.endswith("/jobs"):
            tries.append(json.loads(handler.body)["metadata"]["name"])
            if len(tries) < 3:
                handler.drop()
        return False

    fake.hooks.append(hook)
    job = both.call("submit", JOB)
    assert list(fake.jobs) == [job.name]
    assert len(tries) == 3
    assert len(set(tries)) == 1, "a repeated submission keeps its name, or it would be another job"


def test_a_job_accepted_after_its_reply_was_lost_is_still_one_job(fake: Any, both: Both) -> None:
    """The first request is slow: it is lost, looked for in vain, sent again, and only then taken in."""
    held: list[dict[str, Any]] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if method == "POST" and path.endswith("/jobs"):
            job = json.loads(handler.body)
            if not held:
                held.append(job)
                handler.drop()
            if len(held) == 1:
                held.append(job)
                fake.put_job(held[0])  # the first one lands just before the second
        return False

    fake.hooks.append(hook)
    job = both.call("submit", JOB)
    assert list(fake.jobs) == [job.name]


def test_a_name_that_is_taken_by_somebody_else_is_an_error(fake: Any, both: Both) -> None:
    fake.put_job({"metadata": {"name": "mine"}, "spec": {}})
    with pytest.raises(errors.AlreadyExists):
        both.call("submit", {**JOB, "metadata": {"name": "mine"}})


def test_a_drawn_name_that_is_taken_is_drawn_again(fake: Any, both: Both) -> None:
    first: list[str] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if method == "POST" and path.endswith("/jobs") and not first:
            first.append(json.loads(handler.body)["metadata"]["name"])
            fake.put_job({"metadata": {"name": first[0]}, "spec": {}})
        return False

    fake.hooks.append(hook)
    job = both.call("submit", JOB)
    assert job.name != first[0]
    assert len(fake.jobs) == 2


def test_an_unreachable_server_is_told_at_once(both: Both) -> None:
    nowhere = Both(both.kind, both.access._replace(url="http://127.0.0.1:1"))
    with pytest.raises(errors.Unreachable, match=r"127\.0\.0\.1:1"):
        nowhere.call("submit", JOB)


def test_logs_go_on_after_a_dropped_connection(fake: Any, both: Both) -> None:
    fake.put_job({"metadata": {"name": "j"}, "spec": {}}, "Running")
    text = bytes(range(256)) * 40
    offsets: list[int] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if not path.endswith("/log"):
            return False
        offset = int(query.get("offset", 0))
        offsets.append(offset)
        assert query["attempt"] == "0"
        handler.begin_chunks({"Isthmus-Log-Offset": str(offset)})
        if len(offsets) < 4:
            handler.chunk(text[offset : offset + 1000])
            handler.drop()
        handler.chunk(text[offset:])
        fake.jobs["j"]["status"]["phase"] = "Succeeded"
        handler.chunk(b"")
        return True

    fake.hooks.append(hook)
    assert b"".join(both.call("logs", "j", follow=True)) == text
    assert offsets == [0, 1000, 2000, 3000]


def test_a_log_that_ends_while_the_job_goes_on_is_asked_for_again(fake: Any, both: Both) -> None:
    """A server that stops ends its streams properly; the job is the one to say that it is over."""
    fake.put_job({"metadata": {"name": "j"}, "spec": {}}, "Running")
    fake.log = b"one two"
    served: list[int] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if path.endswith("/log"):
            served.append(int(query.get("offset", 0)))
            if len(served) == 2:
                fake.log += b" three"
                fake.jobs["j"]["status"]["phase"] = "Succeeded"
        return False

    fake.hooks.append(hook)
    assert b"".join(both.call("logs", "j", follow=True)) == b"one two three"
    assert served == [0, 7]


def test_the_next_try_is_followed_from_its_start(fake: Any, both: Both) -> None:
    fake.put_job({"metadata": {"name": "j"}, "spec": {}}, "Running", attempt=0)
    asked: list[tuple[str, str]] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if not path.endswith("/log"):
            return False
        asked.append((query["attempt"], query.get("offset", "0")))
        handler.send_bytes(b"try %s\n" % query["attempt"].encode())
        if query["attempt"] == "0":
            fake.jobs["j"]["status"] = {"phase": "Running", "attempt": 1}
        else:
            fake.jobs["j"]["status"] = {"phase": "Succeeded", "attempt": 1}
        return True

    fake.hooks.append(hook)
    assert b"".join(both.call("logs", "j", follow=True)) == b"try 0\ntry 1\n"
    assert asked == [("0", "0"), ("1", "0")]


def test_wait_lists_again_when_its_version_is_too_old(fake: Any, both: Both) -> None:
    fake.put_job({"metadata": {"name": "j"}, "spec": {}}, "Running")
    watches: list[str] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if query.get("watch") != "1":
            return False
        watches.append(query["resourceVersion"])
        if len(watches) == 1:
            handler.send_status(410, "Expired", "too old")
            return True
        if len(watches) == 2:
            handler.begin_chunks()
            error = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            handler.chunk(json.dumps({"type": "ERROR", "object": error}).encode() + b"\n")
            fake.version = 99
            handler.chunk(b"")
            return True
        assert query["resourceVersion"] == "99"
        done = {**fake.jobs["j"], "status": {"phase": "Failed", "exitCode": 7}}
        line = json.dumps({"type": "MODIFIED", "object": done}).encode() + b"\n"
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "120"}}}
        handler.begin_chunks()
        handler.chunk(json.dumps(bookmark).encode() + b"\n" + line[:20])
        handler.chunk(line[20:])
        handler.drop()
        return True

    fake.hooks.append(hook)
    job = both.call("wait", "j")
    assert (job.phase, job.exit_code) == ("Failed", 7)
    assert len(watches) == 3


def test_wait_gives_up_in_time(fake: Any, both: Both) -> None:
    fake.put_job({"metadata": {"name": "j"}, "spec": {}}, "Running")

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if query.get("watch") == "1":
            handler.begin_chunks()
            handler.rfile.read(1)  # until the client leaves
            handler.drop()
        return False

    fake.hooks.append(hook)
    with pytest.raises(TimeoutError, match="has not ended"):
        both.call("wait", "j", timeout=0.2)


def test_a_job_deleted_while_waited_for_is_an_error(fake: Any, both: Both) -> None:
    fake.put_job({"metadata": {"name": "j"}, "spec": {}}, "Running")

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if query.get("watch") == "1":
            handler.begin_chunks()
            handler.chunk(json.dumps({"type": "DELETED", "object": fake.jobs["j"]}).encode() + b"\n")
            handler.chunk(b"")
            return True
        return False

    fake.hooks.append(hook)
    with pytest.raises(errors.NotFound, match="deleted"):
        both.call("wait", "j")


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (401, "Unauthorized", errors.Unauthenticated),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (422, "Invalid", errors.Invalid),
        (413, "RequestEntityTooLarge", errors.TooLarge),
        (500, "InternalError", errors.IsthmusError),
    ],
)
def test_errors_of_the_server_arrive_as_ours(
    fake: Any, both: Both, code: int, reason: str, kind: type[errors.IsthmusError]
) -> None:
    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        handler.send_status(code, reason, "say why", causes=[{"field": "spec.x", "message": "no", "reason": "R"}])
        return True

    fake.hooks.append(hook)
    with pytest.raises(kind, match="say why") as caught:
        both.call("get", "jobs", "x")
    assert type(caught.value) is kind
    assert caught.value.causes == (errors.Cause("spec.x", "no", "R"),)


def test_a_busy_server_is_asked_again(fake: Any, both: Both) -> None:
    fake.put_job({"metadata": {"name": "j"}, "spec": {}})
    refused: list[int] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        if len(refused) < 2:
            refused.append(1)
            handler.send_status(503, "StoreUnavailable", "locked", retryAfterSeconds=0.01)
            return True
        return False

    fake.hooks.append(hook)
    assert both.call("get", "jobs", "j")["metadata"]["name"] == "j"


def test_something_that_is_no_isthmus_server_is_told(fake: Any, both: Both) -> None:
    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        handler.send_bytes(b"<html>hello</html>")
        return True

    fake.hooks.append(hook)
    with pytest.raises(errors.Unavailable, match="not a JSON object"):
        both.call("get", "jobs", "j")


def test_a_folder_is_sent_once(fake: Any, both: Both, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"alpha")
    (tmp_path / "copy.txt").write_bytes(b"alpha")
    (tmp_path / "empty").write_bytes(b"")
    both.call("send_folder", tmp_path)
    assert sorted(fake.contents.values()) == [b"", b"alpha"]
    assert fake.requests("POST", "/files/pack") == 1
    both.call("send_folder", tmp_path)
    assert fake.requests("POST", "/files/pack") == 1, "what the server has is not sent again"
    assert fake.trees[0] == fake.trees[1]


def test_run_refers_to_the_folder_it_sent(fake: Any, both: Both, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    job = both.call("run", ["python", "train.py"], files=tmp_path, devices=["akida:2"], env={"A": "1"}, force=True)
    spec = fake.jobs[job.name]["spec"]
    assert job.name.startswith("train-")
    assert spec["files"] == {"tree": "sha256:" + "0" * 64, "count": 1, "bytes": 1}
    assert spec["resources"]["devices"] == [{"class": "akida", "count": 2}]
    assert spec["env"] == [{"name": "A", "value": "1"}]


def test_the_namespace_comes_from_the_token(fake: Any, both: Both) -> None:
    unnamed = Both(both.kind, both.access._replace(namespace=None))
    unnamed.call("submit", JOB)
    assert len(fake.jobs) == 1


def test_several_tenants_must_be_told_apart(fake: Any, both: Both) -> None:
    fake.groups = ["isthmus:a:member", "isthmus:b:viewer", "system:authenticated"]
    unnamed = Both(both.kind, both.access._replace(namespace=None))
    with pytest.raises(errors.Invalid, match="a, b"):
        unnamed.call("submit", JOB)


def test_the_token_and_the_name_of_the_program_are_sent(fake: Any, both: Both) -> None:
    seen: list[tuple[str, str]] = []

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        seen.append((handler.headers["authorization"], handler.headers["user-agent"]))
        return False

    fake.hooks.append(hook)
    fake.put_job({"metadata": {"name": "j"}, "spec": {}})
    both.call("cancel", "j")
    assert seen[0][0] == "Bearer ist_t_secret"
    assert seen[0][1].startswith("isthmus/")
    assert fake.jobs["j"]["spec"]["intent"] == "Cancel"


def test_a_kept_connection_that_was_closed_is_replaced(fake: Any) -> None:
    fake.put_job({"metadata": {"name": "j"}, "spec": {}})

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        handler.close_connection = True  # answered properly, then closed without a word
        return False

    fake.hooks.append(hook)
    with Client.at(fake.access) as client:
        for _ in range(3):
            assert client.get("jobs", "j")["metadata"]["name"] == "j"


def test_https_to_a_plain_port_is_a_sentence(fake: Any, both: Both) -> None:
    secure = Both(both.kind, both.access._replace(url=both.access.url.replace("http:", "https:")))
    with pytest.raises(errors.Unreachable, match=r"does not speak TLS.*http://"):
        secure.call("get", "jobs", "j")


def _array_with_outputs(fake: Any) -> None:
    array = fake.put_job({"metadata": {"name": "a"}, "spec": {"array": {"indices": "0-10"}}}, "Succeeded")
    owner = {"ownerReferences": [{"uid": array["metadata"]["uid"]}]}
    for index, count in ((10, 1), (2, 1), (3, 0)):
        meta = {"name": f"a-{index}", "labels": {"isthmus.dev/array-index": str(index)}, **owner}
        fake.put_job({"metadata": meta, "spec": {}}, "Succeeded", outputs={"count": count})
    # Not of this array, though its label says so: an element of one that was deleted.
    fake.put_job({"metadata": {"name": "a-1"}, "spec": {}}, "Succeeded", outputs={"count": 1})

    def hook(method: str, path: str, query: dict[str, str], handler: Any) -> bool:
        job, _, rest = path.removeprefix(f"{BASE}/jobs/").partition("/")
        if not rest.startswith("outputs"):
            return False
        if not job.startswith("a-"):
            handler.send_status(404, "NotFound", "left no outputs")
        elif query.get("archive"):
            stream = io.BytesIO()
            with tarfile.open(fileobj=stream, mode="w") as made:
                info = tarfile.TarInfo("out/o.txt")
                info.size = len(job)
                made.addfile(info, io.BytesIO(job.encode()))
            handler.send_bytes(stream.getvalue())
        elif rest == "outputs":
            handler.send_json({"files": [{"path": "out/o.txt", "size": len(job)}], "bytes": len(job)})
        else:
            handler.send_bytes(f"{job} {rest}".encode())
        return True

    fake.hooks.append(hook)


def test_what_an_array_left_lies_below_the_indices(fake: Any, both: Both, tmp_path: Path) -> None:
    _array_with_outputs(fake)
    found = both.call("outputs", "a")
    assert [file["path"] for file in found["files"]] == ["2/out/o.txt", "10/out/o.txt"]
    assert found["bytes"] == len("a-2") + len("a-10")
    assert both.call("download", "a", tmp_path) == ["2/out/o.txt", "10/out/o.txt"]
    assert (tmp_path / "10" / "out" / "o.txt").read_text() == "a-10"
    assert both.call("read_output", "a", "10/out/o.txt") == b"a-10 outputs/out/o.txt"
    with pytest.raises(errors.NotFound):
        both.call("read_output", "a", "7/out/o.txt")


def test_an_array_that_left_nothing_says_so(fake: Any, both: Both) -> None:
    fake.put_job({"metadata": {"name": "a"}, "spec": {"array": {"indices": "0"}}}, "Running")
    with pytest.raises(errors.NotFound, match="array a has left outputs yet"):
        both.call("outputs", "a")
