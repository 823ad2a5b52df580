"""Files and outputs over HTTP: what goes in comes back, each tenant's apart, hostile bodies refused."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus.api.context import RequestLimits
from isthmus.resources.work.trees import Tree, TreeFile, digest_of
from isthmus.testing.apis import RunningApi, running_api

pytestmark = pytest.mark.anyio
FILES = "/apis/isthmus.dev/v1/namespaces/physics/files"
JOBS = "/apis/isthmus.dev/v1/namespaces/physics/jobs"


def pack(*contents: bytes, name: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for data in contents:
            member = tarfile.TarInfo(name or digest_of(data))
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def incoming(api: RunningApi) -> list[Path]:
    return list((api.folder / "blobs" / ".incoming").iterdir())


async def upload_outputs(api: RunningApi, name: str, files: dict[str, bytes], links: dict[str, str]) -> None:
    async with api.client() as client:
        assert (await client.post(f"{FILES}/pack", content=pack(*files.values()))).status_code == 200
    tree = Tree(
        files=[TreeFile(path=p, size=len(d), digest=digest_of(d)) for p, d in files.items()]
        + [TreeFile(path=p, link=target) for p, target in links.items()]
    )
    digest = await api.blobs.put_tree("physics", tree)
    outputs = {"tree": digest, "bytes": tree.total_bytes, "count": len(tree.files)}
    await api.create_job(name, phase="Succeeded", outputs=outputs, finishedAt="2026-01-31T18:00:00Z")


async def test_a_folder_is_sent(api: RunningApi) -> None:
    contents = [b"", b"print()", os.urandom(2_000_000)]
    digests = [digest_of(data) for data in contents]
    async with api.client() as client:
        answer = await client.post(f"{FILES}/missing", json={"digests": digests})
        assert answer.json() == {"missing": digests}
        tree = {"files": [{"path": f"f{n}", "size": len(d), "digest": digest_of(d)} for n, d in enumerate(contents)]}
        early = await client.put(f"{FILES}/tree", json=tree)
        assert early.status_code == 422
        assert digests[1] in early.json()["message"]
        stored = await client.post(f"{FILES}/pack", content=pack(*contents[:2]))
        assert stored.json() == {"stored": 2, "bytes": 7}
        assert (await client.put(f"{FILES}/{digests[2]}", content=contents[2])).json() == {
            "stored": 1,
            "bytes": 2_000_000,
        }
        assert (await client.post(f"{FILES}/missing", json={"digests": digests})).json() == {"missing": []}
        kept = await client.put(f"{FILES}/tree", json=tree)
        assert kept.json()["count"] == 3
        assert (await api.blobs.get_tree("physics", kept.json()["tree"])).digests == set(digests)
        tree["files"][1]["size"] = 99
        lied = await client.put(f"{FILES}/tree", json=tree)
        assert lied.status_code == 422
        assert "'f1' has 7 bytes" in lied.json()["message"]


async def test_a_content_comes_back_in_ranges(api: RunningApi) -> None:
    data = bytes(range(256)) * 1000
    url = f"{FILES}/{digest_of(data)}"
    async with api.client() as client:
        await client.put(url, content=data)
        whole = await client.get(url)
        assert whole.content == data
        assert whole.headers["content-type"] == "application/octet-stream"
        assert whole.headers["x-content-type-options"] == "nosniff"
        part = await client.get(url, headers={"Range": "bytes=1000-1999"})
        assert (part.status_code, part.content) == (206, data[1000:2000])
        assert part.headers["content-range"] == f"bytes 1000-1999/{len(data)}"
        beyond = await client.get(url, headers={"Range": f"bytes={len(data)}-"})
        assert (beyond.status_code, beyond.json()["kind"]) == (416, "Status")
        assert (await client.get(url, headers={"Range": "nonsense"})).content == data
        head = await client.head(url)
        assert (head.headers["content-length"], head.content) == (str(len(data)), b"")
        assert (await client.get(url, headers={"If-None-Match": whole.headers["etag"]})).status_code == 304


async def test_each_tenant_has_its_own(api: RunningApi) -> None:
    digest = digest_of(b"secret")
    other = FILES.replace("physics", "biology")
    async with api.client() as client:
        await client.put(f"{FILES}/{digest}", content=b"secret")
        for answer in (
            await client.get(f"{other}/{digest}"),
            await client.post(f"{other}/missing", json={"digests": [digest]}),
            await client.put(f"{other}/{digest}", content=b"secret"),
        ):
            assert answer.status_code == 403
    async with api.client("stranger") as client:
        assert (await client.post(f"{other}/missing", json={"digests": [digest]})).json() == {"missing": [digest]}
        assert (await client.get(f"{other}/{digest}")).status_code == 404
    async with api.client("viewer") as client:
        assert (await client.get(f"{FILES}/{digest}")).content == b"secret"
        assert (await client.put(f"{FILES}/{digest}", content=b"secret")).status_code == 403
        assert (await client.post(f"{FILES}/pack", content=pack(b"x"))).status_code == 403
        assert (await client.put(f"{FILES}/tree", json={"files": []})).status_code == 403
    async with api.client("") as client:
        assert (await client.get(f"{FILES}/{digest}")).status_code == 401
    async with api.client("admin") as client:
        assert (await client.put(f"/apis/isthmus.dev/v1/namespaces/nobody/files/{digest}")).status_code == 404
        assert not (api.folder / "blobs" / "nobody").exists()


HOSTILE = {
    "a path": pack(b"x", name="../../etc/cron.d/x"),
    "an absolute path": pack(b"x", name="/etc/passwd"),
    "a wrong digest": pack(b"x", name=digest_of(b"y")),
    "cut": pack(b"x" * 5000)[:3000],
    "empty": b"",
    "gzip": gzip.compress(pack(bytes(50_000_000))),
    "noise": os.urandom(5000),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_packs_are_refused(api: RunningApi, body: bytes) -> None:
    async with api.client() as client:
        answer = await client.post(f"{FILES}/pack", content=body)
        assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert incoming(api) == []


@pytest.mark.parametrize(
    "digest", ["sha256:..", "..%2f..%2fetc%2fpasswd", "md5:" + "0" * 64, "sha256:" + "g" * 64, "sha256:" + "0" * 65]
)
async def test_what_is_no_digest_is_refused(api: RunningApi, digest: str) -> None:
    async with api.client() as client:
        assert (await client.get(f"{FILES}/{digest}")).status_code in (404, 422)
        assert (await client.put(f"{FILES}/{digest}", content=b"x")).status_code in (404, 405, 422)


async def test_bad_bodies_are_refused(api: RunningApi) -> None:
    async with api.client() as client:
        wrong = await client.put(f"{FILES}/{digest_of(b'x')}", content=b"y")
        assert wrong.status_code == 422
        zipped = await client.post(f"{FILES}/pack", content=b"x", headers={"Content-Encoding": "gzip"})
        assert zipped.status_code == 415
        for path, method, body, code in (
            ("missing", "POST", b"{", 400),
            ("missing", "POST", b"[]", 422),
            ("missing", "POST", b'{"digests":["x"]}', 422),
            ("missing", "POST", b'{"digests":[' + b'"sha256:%b",' % (b"0" * 64) * 10_000 + b'""]}', 422),
            ("missing", "POST", b"[" * 100_000, 400),
            ("missing", "POST", b" " * 2_000_000, 413),
            ("tree", "PUT", b'{"files":[{"path":"../x","link":"y"}]}', 422),
            ("tree", "PUT", b'{"files":[{"path":"a","link":"/etc/passwd"}]}', 422),
            ("tree", "PUT", b'{"files":[{"path":"a","link":"b"},{"path":"a/c","link":"b"}]}', 422),
            ("tree", "PUT", b"[" * 100_000, 400),
            ("tree", "PUT", b"\xff", 400),
        ):
            answer = await client.request(method, f"{FILES}/{path}", content=body)
            assert answer.status_code == code, (path, body[:50], answer.text[:200])
            assert answer.json()["kind"] == "Status"


async def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    async with running_api(tmp_path, RequestLimits(file_bytes=100_000)) as api, api.client() as client:
        data = bytes(200_000)

        async def body() -> AsyncIterator[bytes]:
            for at in range(0, len(data), 1000):
                yield data[at : at + 1000]

        for content in (data, body()):
            answer = await client.put(f"{FILES}/{digest_of(data)}", content=content)
            assert answer.status_code == 413
        assert (await client.post(f"{FILES}/pack", content=pack(data))).status_code == 413
        assert incoming(api) == []


async def test_an_upload_that_breaks_off_leaves_nothing(api: RunningApi) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    for path in ("pack", digest_of(b"x")):
        reader, writer = await asyncio.open_connection(host, int(port))
        method = "POST" if path == "pack" else "PUT"
        head = f"{method} {FILES}/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.tokens['member']}\r\n"
        writer.write(head.encode() + b"Content-Length: 9000000\r\n\r\n")
        writer.write(pack(os.urandom(4_000_000))[:3_000_000])
        await writer.drain()
        async with asyncio.timeout(30):
            while not incoming(api):
                await asyncio.sleep(0.01)
        writer.close()
        async with asyncio.timeout(30):
            while incoming(api):
                await asyncio.sleep(0.01)
        reader.feed_eof()


async def test_outputs_are_listed_and_downloaded(api: RunningApi) -> None:
    page = b"<script>alert(1)</script>"
    files = {"out/a.csv": b"1,2", "out/page.html": page, 'böse "x".bin': b"\0" * 1000, "empty": b""}
    await upload_outputs(api, "j", files, {"latest": "out/a.csv", "loop": "loop", "gone": "nothing"})
    async with api.client("viewer") as client:
        listing = (await client.get(f"{JOBS}/j/outputs")).json()
        assert {file["path"] for file in listing["files"]} == {*files, "latest", "loop", "gone"}
        assert listing["bytes"] == sum(map(len, files.values()))
        text = await client.get(f"{JOBS}/j/outputs/out/a.csv")
        assert (text.content, text.headers["content-type"]) == (b"1,2", "text/plain; charset=utf-8")
        assert (await client.get(f"{JOBS}/j/outputs/latest")).content == b"1,2"
        html = await client.get(f"{JOBS}/j/outputs/out/page.html")
        assert html.content == page
        assert html.headers["content-type"] == "application/octet-stream"
        assert html.headers["content-disposition"] == 'attachment; filename="page.html"'
        odd = await client.get(f"{JOBS}/j/outputs/b%C3%B6se%20%22x%22.bin", headers={"Range": "bytes=0-9"})
        assert (odd.status_code, odd.content) == (206, bytes(10))
        assert "\n" not in odd.headers["content-disposition"]
        for path in ("none", "loop", "gone", "out", "..%2f..%2fetc/passwd", "/etc/passwd"):
            assert (await client.get(f"{JOBS}/j/outputs/{path}")).status_code == 404


async def test_outputs_as_an_archive(api: RunningApi) -> None:
    large = os.urandom(3_000_000)
    await upload_outputs(api, "j", {"a/large": large, "b": b"x"}, {"c": "b"})
    async with api.client() as client:
        answer = await client.get(f"{JOBS}/j/outputs?archive=tar")
        assert answer.headers["content-type"] == "application/x-tar"
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
            assert sorted(tar.getnames()) == ["a/large", "b", "c"]
            content = tar.extractfile("a/large")
            assert content is not None
            assert content.read() == large
            assert tar.getmember("b").mtime == 1769882400
        assert (await client.get(f"{JOBS}/j/outputs?archive=zip")).status_code == 422


async def test_outputs_that_are_not_there(api: RunningApi) -> None:
    await api.create_job("running", phase="Running")
    await api.create_job("ended", phase="Failed")
    async with api.client() as client:
        running = await client.get(f"{JOBS}/running/outputs")
        assert running.status_code == 404
        assert "it is Running" in running.json()["message"]
        assert "spec.outputs" in (await client.get(f"{JOBS}/ended/outputs/x")).json()["message"]
        assert (await client.get(f"{JOBS}/none/outputs")).status_code == 404
    async with api.client("stranger") as client:
        assert (await client.get(f"{JOBS}/ended/outputs")).status_code == 403
        assert (await client.get(f"{JOBS}/ended/outputs/x")).status_code == 403


async def test_a_full_disk_is_told(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    async with api.client() as client:
        # Every write of the process fails, the audit log's too, which would answer first.
        monkeypatch.setattr("isthmus.identity.audit.audit_log.AuditLog.check", lambda _: None)
        monkeypatch.setattr("isthmus.storage.directory.os.write", full)
        for answer in (
            await client.put(f"{FILES}/{digest_of(b'x')}", content=b"x"),
            await client.post(f"{FILES}/pack", content=pack(b"x", bytes(500_000))),
        ):
            assert answer.status_code == 503
            assert "free some space" in answer.json()["message"]
            assert int(answer.headers["retry-after"]) > 0
    assert incoming(api) == []
