"""Images of a registry with accounts, through the whole platform: signed in, pinned, run, listed, removed; no leaks."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.lab.registry.daemon import RegistryLab
from isthmus.lab.registry.layout import USER
from isthmus.lab.registry.seeding import push
from isthmus.resources.tokens import new_secret
from isthmus.testing.image_archives import busybox_layer, layer, member, oci_blobs
from isthmus.testing.servers import GROUP, ServerProcess, eventually

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def lab(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryLab]:
    folder = tmp_path_factory.mktemp("lab")
    said = cli(server, "lab", "up", "--registry", "--data", str(folder))
    made = RegistryLab(folder / "registry")
    assert f"isthmus registry login {made.place.host}" in said
    assert "BEGIN CERTIFICATE" in server.request(f"{GROUP}/sites/local")["spec"]["registries"]["authorities"]
    yield made
    cli(server, "lab", "down", "--erase", "--data", str(folder))
    assert "authorities" not in server.request(f"{GROUP}/sites/local")["spec"]["registries"]
    assert not made.place.root.exists()


def cli(server: ServerProcess, *words: str, stdin: str = "", code: int = 0, token: str | None = None) -> str:
    env = {**os.environ, "ISTHMUS_URL": server.url, "ISTHMUS_TOKEN": token or server.token}
    done = subprocess.run(
        [sys.executable, "-m", "isthmus.cli", *words], env=env, input=stdin, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def tenant(server: ServerProcess, name: str, *members: str) -> None:
    spec: dict[str, Any] = {"members": [{"user": user, "role": "member"} for user in members]}
    server.request(
        f"{GROUP}/tenants",
        {"apiVersion": "isthmus.dev/v1", "kind": "Tenant", "metadata": {"name": name}, "spec": spec},
    )


def token_of(server: ServerProcess, user: str) -> str:
    name, secret, digest = new_secret()
    spec = {"user": user, "sha256": digest}
    server.request(
        f"{GROUP}/namespaces/isthmus-system/tokens",
        {"apiVersion": "isthmus.dev/v1", "kind": "Token", "metadata": {"name": name}, "spec": spec},
    )
    return secret


def refused(server: ServerProcess, *args: Any, **options: Any) -> int:
    with pytest.raises(urllib.error.HTTPError) as failed:
        server.request(*args, **options)
    failed.value.close()
    return int(failed.value.code)


def test_an_account_is_kept_secret_and_used_for_its_owner_only(server: ServerProcess, lab: RegistryLab) -> None:
    image, password = lab.image, lab.place.password.read_text().strip()
    tenant(server, "physics", "ada", "bob")
    tenant(server, "biology", "eve")
    ada, bob, eve = (token_of(server, user) for user in ("ada", "bob", "eve"))
    failed = cli(server, "run", "-n", "physics", "--no-files", "--image", image, "--", "true", code=125, token=ada)
    assert f"sign in: isthmus registry login {lab.place.host}" in failed
    words = ("registry", "login", lab.place.host, "--user", USER, "--password-stdin", "-n", "physics")
    assert "kept: your jobs fetch images" in cli(server, *words, stdin=password + "\n", token=ada)
    told = cli(
        server, "run", "-n", "physics", "--no-files", "--name", "mine", "--image", image, "--", "uname", token=ada
    )
    assert told.splitlines()[0] == "Linux"
    status = server.status("mine", "physics")
    assert status["image"].startswith("sha256:")
    for who, where in ((bob, "physics"), (eve, "biology")):
        by_digest = f"{image.rpartition(':')[0]}@{status['image']}"
        for wanted in (image, by_digest):
            cli(server, "run", "-n", where, "--no-files", "--image", wanted, "--", "true", code=125, token=who)
    # Where it might have been left.
    secrets = f"{GROUP}/namespaces/physics/secrets"
    for token in (ada, bob, server.token):
        assert password not in str(server.request(secrets, token=token))
    assert refused(server, secrets, token=eve) == 403
    (kept,) = server.request(secrets, token=ada)["items"]
    assert (kept["status"]["member"], "sealed" in kept["spec"], "password" in kept["spec"]) == ("ada", False, False)
    path = f"{secrets}/{kept['metadata']['name']}"
    assert refused(server, path, {"spec": {"password": "x"}}, method="PATCH", token=bob) == 403
    assert refused(server, path, {"spec": {"shared": True}}, method="PATCH", token=ada) == 422
    assert refused(server, path, {"spec": {"registry": "evil.example"}}, method="PATCH", token=ada) == 422
    for file in [
        server.log,
        *(path for path in server.data.rglob("*") if path.is_file() and "/root/" not in str(path)),
    ]:
        assert password.encode() not in file.read_bytes(), file
    assert server.data.joinpath("files", "secrets.key").stat().st_mode & 0o777 == 0o600
    # Listed for whom it is, and removed.
    (listed,) = server.request(f"{GROUP}/namespaces/physics/images", token=bob)["items"]
    assert (listed["site"], listed["digest"], listed["private"]) == ("local", status["image"], True)
    assert server.request(f"{GROUP}/namespaces/biology/images", token=eve)["items"] == []
    assert refused(server, f"{GROUP}/images", token=eve) == 403
    assert refused(server, f"{GROUP}/namespaces/physics/images", token=eve) == 403
    assert [item["tenants"] for item in server.request(f"{GROUP}/images")["items"]] == [["physics"]]
    assert image in cli(server, "images", "-n", "physics", token=ada)
    cli(server, "images", "rm", image, "-n", "physics", token=ada)
    assert server.request(f"{GROUP}/images")["items"] == []
    cli(server, "registry", "logout", lab.place.host, "-n", "physics", token=ada)
    cli(server, "run", "-n", "physics", "--no-files", "--image", image, "--", "true", code=125, token=ada)


def test_a_tag_that_moves_does_not_move_a_job(server: ServerProcess, lab: RegistryLab) -> None:
    def put(text: bytes) -> str:
        blobs, manifest = oci_blobs([busybox_layer(), layer(member("version", text))], ["PATH=/bin"])
        digest = str(manifest["digest"])
        with lab.client() as client:
            push(client, "lab/moving", "1", {d: c for d, c in blobs.items() if d != digest}, blobs[digest])
        return digest

    password = lab.place.password.read_text()
    cli(server, "registry", "login", lab.place.host, "--user", USER, "--shared", "--password-stdin", stdin=password)
    first, image = put(b"one\n"), f"{lab.place.host}/lab/moving:1"
    server.submit("held", "cat", "/version", image=image, array={"indices": "0-2"}, intent="Hold")
    eventually(lambda: server.status("held").get("image"))
    server.submit("early", "cat", "/version", image=image)
    assert server.finished("early")["image"] == first
    cli(server, "images", "pull", image, "--site", "local")
    second = put(b"two\n")
    server.patch("held", intent="Run")
    done = server.finished("held")
    assert (done["phase"], {server.output(f"held-{index}") for index in range(3)}) == ("Succeeded", {"one\n"})
    assert {server.status(f"held-{index}")["image"] for index in range(3)} == {done["image"]} == {first}
    server.submit("late", "cat", "/version", image=image)
    assert (server.finished("late")["image"], server.output("late")) == (second, "two\n")


def test_the_folder_of_the_lab_is_not_needed_to_look(server: ServerProcess, tmp_path: Path) -> None:
    assert "no registry runs" in cli(server, "lab", "status", "--data", str(tmp_path))
