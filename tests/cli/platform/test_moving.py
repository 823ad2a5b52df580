"""`isthmus export` and `import` as commands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli.platform.installing import install
from isthmus.cli.platform.moving import export, import_
from isthmus.errors import Invalid, Misconfigured
from isthmus.resources.frame.validation import validate
from isthmus.resources.kinds import JOB, SITE, TOKEN
from isthmus.resources.tokens import hash_secret
from isthmus.store.base import Key
from isthmus.store.opening import open_store
from isthmus.testing.stores import job, job_key, site


async def fill(folder: Path) -> None:
    folder.mkdir()
    store = await open_store(folder / "isthmus.db")
    await store.create(SITE, site("local"))
    await store.create(JOB, {**job("a"), "spec": {**job("a")["spec"], "deadline": "2026-01-01T00:00:00Z"}})
    token = {"metadata": {"name": "t", "namespace": "ada"}, "spec": {"user": "ada", "sha256": hash_secret("x")}}
    await store.create(TOKEN, validate(TOKEN, token))
    await store.close()


async def found(folder: Path, key: Key) -> Any:
    store = await open_store(folder / "isthmus.db")
    try:
        return (await store.get(key)).obj
    finally:
        await store.close()


def test_from_folder_to_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    asyncio.run(fill(old))
    for name in ("objects.yaml", "objects.json"):
        file = tmp_path / name
        export(str(file), data=old)
        assert "2 objects written" in capsys.readouterr().err
        assert file.stat().st_mode & 0o777 == 0o600
        assert hash_secret("x") not in file.read_text()
    import_(str(tmp_path / "objects.yaml"), data=new)
    assert "2 made" in capsys.readouterr().err
    import_(str(tmp_path / "objects.json"), data=new)
    assert "0 made, 0 finished, 2 there" in capsys.readouterr().err
    moved = asyncio.run(found(new, job_key("a")))
    assert moved["spec"]["deadline"] == "2026-01-01T00:00:00Z"
    where = asyncio.run(found(new, Key("Site", "", "local")))["spec"]["local"]
    assert where["root"] == str(old / "sites" / "local"), "its runs are where they were"


def test_tokens_are_guarded(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "old"))
    with pytest.raises(Invalid, match="only into a file"):
        export("-", data=tmp_path / "old", with_tokens=True)
    file = tmp_path / "objects.json"
    export(str(file), data=tmp_path / "old", with_tokens=True)
    assert file.stat().st_mode & 0o777 == 0o600
    assert hash_secret("x") in file.read_text()


def test_what_is_refused(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "old"))
    file = tmp_path / "objects.json"
    export(str(file), data=tmp_path / "old")
    lines = file.read_text().splitlines()
    for text, reported in (
        ("\n".join(lines[:-1]), "cut short"),
        ("\n".join(lines)[:-20], "cut short"),
        (json.dumps([1]), "not an object"),
    ):
        file.write_text(text)
        with pytest.raises(Invalid, match=reported):
            import_(str(file), data=tmp_path / "new")
    with pytest.raises(Misconfigured, match="there is no instance"):
        export(str(file), data=tmp_path / "none")
    with pytest.raises(Invalid, match="say where to"):
        install()
