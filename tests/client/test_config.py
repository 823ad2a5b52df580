"""Where the server is found, and that tokens go nowhere else."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from isthmus.client.config import find_access, login_file
from isthmus.client.kubeconfigs import Access, read_access, write_access
from isthmus.errors import Misconfigured, Unauthenticated


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr("isthmus.config.server.default_data_folder", lambda _: tmp_path / "data")
    return {"HOME": str(home)}


def test_arguments_go_before_the_environment_before_a_login(env: dict[str, str]) -> None:
    with pytest.raises(Misconfigured, match="isthmus up"):
        find_access(environment=env)
    write_access(login_file(env), Access("http://kept", "kept-token", "kept-ns"), "isthmus")
    assert find_access(environment=env) == Access("http://kept", "kept-token", "kept-ns")
    env |= {"ISTHMUS_URL": "http://env", "ISTHMUS_TOKEN": "ist_env_token", "ISTHMUS_NAMESPACE": "env-ns"}
    assert find_access(environment=env) == Access("http://env", "ist_env_token", "env-ns")
    assert find_access("http://arg", "ist_arg_token", "arg-ns", env) == Access("http://arg", "ist_arg_token", "arg-ns")


def test_a_kept_token_is_not_sent_to_another_address(env: dict[str, str]) -> None:
    write_access(login_file(env), Access("http://kept", "kept-token", "ns"), "isthmus")
    assert find_access("http://other", environment=env).token is None
    assert find_access("http://KEPT/", environment=env).token == "kept-token"


def test_other_clusters_of_kubeconfig_are_left_alone(env: dict[str, str], tmp_path: Path) -> None:
    other = tmp_path / "kube"
    write_access(other, Access("https://production", "cluster-admin", "default"), "production")
    env["KUBECONFIG"] = str(other)
    with pytest.raises(Misconfigured):
        find_access(environment=env)
    write_access(other, Access("http://ours", "t", "lab"), "isthmus")
    assert find_access(environment=env).url == "http://ours"


def test_the_instance_of_this_machine_comes_last(env: dict[str, str], tmp_path: Path) -> None:
    write_access(tmp_path / "data" / "kubeconfig", Access("http://local", "t", "default"), "isthmus")
    assert find_access(environment=env).url == "http://local"


def test_on_this_machine_too_it_is_verified_who_answers(env: dict[str, str], tmp_path: Path) -> None:
    write_access(tmp_path / "data" / "kubeconfig", Access("https://127.0.0.1:7070", "ist_a_b", "t", b"new"), "isthmus")
    pinned = Access("https://127.0.0.1:7070", "ist_my_own", None, b"new")
    for url in ("http://127.0.0.1:7070", "http://localhost:7070/", "https://127.0.0.1:7070"):
        assert find_access(url, "ist_my_own", environment=env) == pinned
    assert find_access("http://127.0.0.1:7071", "ist_my_own", environment=env).ca is None, "that is another server"
    assert find_access("http://127.0.0.1:no", "ist_my_own", environment=env).ca is None
    # What one signed in with stays; the certificates are those of the instance that is there now.
    write_access(login_file(env), Access("https://127.0.0.1:7070", "ist_kept_one", "mine", b"old"), "isthmus")
    assert find_access("http://127.0.0.1:7070", environment=env).token == "ist_kept_one"
    assert find_access("http://127.0.0.1:7070", "ist_my_own", environment=env) == pinned


def test_token_from_a_file(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("ist_from_file\n")
    found = find_access(environment={**env, "ISTHMUS_URL": "http://x", "ISTHMUS_TOKEN_FILE": str(file)})
    assert found.token == "ist_from_file"
    with pytest.raises(Misconfigured, match="ISTHMUS_TOKEN_FILE"):
        find_access(environment={**env, "ISTHMUS_TOKEN_FILE": str(tmp_path / "none")})


def test_a_kubeconfig_is_private_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "config"
    write_access(file, Access("http://one", "t1", "a", b"PEM"), "one")
    write_access(file, Access("http://two", "t2", "b"), "two")
    write_access(file, Access("http://two", "t3", "b"), "two")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_access(file, "one") == Access("http://one", "t1", "a", b"PEM")
    assert read_access(file) == Access("http://two", "t3", "b")
    assert [c["name"] for c in json.loads(file.read_text())["contexts"]] == ["one", "two"]
    assert read_access(file, "three") is None
    assert list(file.parent.iterdir()) == [file]


def test_yaml_with_files_beside_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "tok").write_text("secret\n")
    (tmp_path / "ca.pem").write_bytes(b"PEM")
    file = tmp_path / "config"
    file.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://x', certificate-authority: ca.pem}}]\n"
        "users: [{name: u, user: {tokenFile: tok}}]\n"
    )
    assert read_access(file) == Access("https://x", "secret", None, b"PEM")


@pytest.mark.parametrize("text", ["[1]", "{", "a: b: c", "\x00"])
def test_a_damaged_kubeconfig_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(Misconfigured, match="config"):
        read_access(file)


def test_certificates_are_always_verified(tmp_path: Path) -> None:
    file = tmp_path / "config"
    write_access(file, Access("https://x", "t"), "c")
    config = json.loads(file.read_text())
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    file.write_text(json.dumps(config))
    with pytest.raises(Misconfigured, match="certificate-authority"):
        read_access(file)


@pytest.mark.real
def test_kubectl_reads_what_we_write(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    assert kubectl, "kubectl is not installed; `make test` installs it"
    file = tmp_path / "config"
    write_access(file, Access("http://127.0.0.1:1", "t", "lab"), "isthmus")
    words = [
        kubectl,
        "--kubeconfig",
        str(file),
        "config",
        "view",
        "--minify",
        "-o",
        "jsonpath={..namespace} {..server}",
    ]
    assert (
        subprocess.run(words, capture_output=True, text=True, check=True).stdout == "lab http://isthmus:t@127.0.0.1:1"
    )
    assert read_access(file) == Access("http://127.0.0.1:1", "t", "lab")


def test_a_token_in_an_address_is_used_and_never_shown(env: dict[str, str]) -> None:
    found = find_access("http://isthmus:se%2Fcret@host:1/base", environment=env)
    assert found == Access("http://host:1/base", "se/cret")
    assert find_access("https://host", "ist_given_x", environment=env) == Access("https://host", "ist_given_x")


@pytest.mark.parametrize("token", ["bogus", "ist_", "ist_name", "ist_name_", "ist__secret", "eyJ_a_b"])
def test_what_cannot_be_a_token_is_not_sent(env: dict[str, str], token: str) -> None:
    with pytest.raises(Unauthenticated, match="ist_NAME_SECRET"):
        find_access("http://x", token, environment=env)
    with pytest.raises(Unauthenticated, match="ist_NAME_SECRET"):
        find_access("http://x", environment={**env, "ISTHMUS_TOKEN": token})
