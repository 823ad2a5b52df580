"""What `isthmus lab` makes of sites of a server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from isthmus import Client
from isthmus.cli.platform.lab import unregister
from tests.cli.conftest import Server

SITE = (
    "apiVersion: isthmus.dev/v1\nkind: Site\nmetadata: {{name: {0}, labels: {{isthmus.dev/lab: 'true'}}}}\nspec: {1}\n"
)


def test_an_erased_lab_is_no_longer_a_site(
    isthmus: Any, server: Server, work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = tmp_path / "lab"
    accounts = "[{tenant: '*', user: nobody, shared: true}]"
    mine, other = (
        f"{{driver: slurm, slurm: {{conf: {folder}/slurm.conf, folder: {folder}/x, accounts: {accounts}}}}}"
        for folder in (lab / "slurm", tmp_path / "lab-2")
    )
    (work / "sites.yaml").write_text(f"{SITE.format('mine', mine)}---\n{SITE.format('other', other)}")
    assert isthmus("apply", "-f", "sites.yaml").returncode == 0
    unregister(lab, server.url, server.token)
    assert "site mine is " in capsys.readouterr().err
    with Client(url=server.url, token=server.token) as client:
        while "mine" in (names := {site["metadata"]["name"] for site in client.list("sites")}):
            time.sleep(0.1)
        assert "other" in names
        client.delete("sites", "other")
