"""Files of running jobs over HTTP: what is there, read-only, bounded, and nothing beside the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus.api.context import RequestLimits
from isthmus.api.runs import working_files
from isthmus.testing.apis import TENANT_NAME, RunningApi, running_api

JOBS = f"/apis/isthmus.dev/v1/namespaces/{TENANT_NAME}/jobs"

pytestmark = pytest.mark.anyio


async def running(api: RunningApi, name: str = "j", **status: object) -> Path:
    record = await api.create_job(name, **{"phase": "Running", "startedAt": "2026-01-31T18:00:00Z", **status})
    work = api.folders.root / record.uid
    work.mkdir(parents=True)
    return work


async def test_files_are_listed_and_read_as_they_are_now(api: RunningApi) -> None:
    work = await running(api)
    (work / "out").mkdir()
    (work / "out/b\u00f6se \x1b[31m.csv").write_bytes(b"1,2\n")
    (work / "stolen").symlink_to("/etc/passwd")
    os.mkfifo(work / "pipe")
    with (work / "sparse").open("wb") as file:
        file.truncate(2**40)
    async with api.client("viewer") as client:
        listed = (await client.get(f"{JOBS}/j/files")).json()
        assert listed["complete"] is True
        assert [(f["path"], f["kind"], f["size"]) for f in listed["files"]] == [
            ("out/b\u00f6se \x1b[31m.csv", "File", 4), ("pipe", "Other", 0), ("sparse", "File", 2**40),
            ("stolen", "Link", 0),
        ]  # fmt: skip
        answer = await client.get(f"{JOBS}/j/files/out/b%C3%B6se%20%1B[31m.csv")
        assert (answer.content, answer.headers["content-type"]) == (b"1,2\n", "application/octet-stream")
        assert answer.headers["content-disposition"].endswith("b%C3%B6se%20%1B%5B31m.csv")
        assert (await client.get(f"{JOBS}/j/files/out/b%C3%B6se%20%1B[31m.csv?offset=2")).content == b"2\n"
        part = await client.get(f"{JOBS}/j/files/sparse?offset=5&limitBytes=3")
        assert (part.content, part.headers["isthmus-file-size"]) == (bytes(3), str(2**40))
        assert (await client.get(f"{JOBS}/j/files/sparse")).status_code == 413
        assert (await client.get(f"{JOBS}/j/files/sparse?limitBytes=-1")).status_code == 422
        for path in ("stolen", "pipe", "out", "none", "%2e%2e/x", "out/%2e%2e/%2e%2e/x", "%2Fetc/passwd", "a//b"):
            assert (await client.get(f"{JOBS}/j/files/{path}")).status_code == 404, path
        assert (await client.put(f"{JOBS}/j/files/x", content=b"y")).status_code == 405
    async with api.client("stranger") as client:
        assert (await client.get(f"{JOBS}/j/files/out")).status_code == 403


async def test_what_is_long_comes_whole_and_what_is_replaced_breaks_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working_files, "PIECE", 10)
    async with running_api(tmp_path, RequestLimits(file_bytes=1000)) as api, api.client() as client:
        work = await running(api)
        (work / "long").write_bytes(b"0123456789" * 5)
        assert (await client.get(f"{JOBS}/j/files/long")).content == b"0123456789" * 5
        for index in range(20):
            (work / f"n{index}").touch()
        monkeypatch.setattr(working_files, "MOST_LISTED", 7)
        listed = (await client.get(f"{JOBS}/j/files")).json()
        assert (len(listed["files"]), listed["complete"]) == (7, False)


async def test_it_is_said_why_there_are_none(api: RunningApi) -> None:
    await api.create_job("waits")
    await api.create_job("over", phase="Succeeded", startedAt="2026-01-31T18:00:00Z")
    await api.create_job("many", {"array": {"indices": "0-3"}})
    async with api.client() as client:
        for name, reported in (("waits", "has not started"), ("over", "is over"), ("many", "such as many-0")):
            assert reported in (await client.get(f"{JOBS}/{name}/files")).json()["message"]
        assert "is over" in (await client.get(f"{JOBS}/over/files/x")).json()["message"]
