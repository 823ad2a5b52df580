"""The Kubernetes lab runs real pods and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isthmus.errors import Misconfigured
from isthmus.lab import processes
from isthmus.lab.kubernetes import binaries, building, downloading, images, kernel
from isthmus.lab.kubernetes.cluster import KubernetesLab, machine_lock
from isthmus.lab.kubernetes.kernel import SETTINGS
from isthmus.lab.kubernetes.layout import KubernetesLabPlace
from isthmus.testing.kubernetes import running_api_server

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def data() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="isk-"))
    yield path
    KubernetesLab(path / "kubernetes").down(erase=True)
    shutil.rmtree(path)


def isthmus(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isthmus.cli", "lab", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def traces(lab: KubernetesLab) -> list[str]:
    """Everything that a lab could leave on the machine."""
    place = lab.place
    left = [f"process {pid}" for pid in processes.all_of(place)]
    left += [f"link {name}" for name in os.listdir("/sys/class/net") if name.split(".")[0] == place.bridge]
    left += [f"mount {line}" for line in Path("/proc/mounts").read_text().splitlines() if str(place.root) in line]
    left += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"*/k8s{place.number}n*")]
    return left


@contextmanager
def another_node(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """What a node of another lab has mounted at the place of all kubelets, in a namespace of its own."""
    number = 9_999
    (folder / "here").touch()
    script = f'mount --bind "$0" {kernel.KUBELET} && echo held && read _ && ls {kernel.KUBELET}'
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(folder)]
    with machine_lock():
        kernel.remember(number)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        assert node.stdout.readline() == "held\n"
        yield node
    with machine_lock():
        kernel.restore(number)


def settings() -> list[str]:
    return [(Path("/proc/sys") / name).read_text() for name in SETTINGS]


@pytest.mark.real
def test_the_command_line_and_what_is_left(data: Path, tmp_path: Path) -> None:
    before, others = settings(), kernel.FOLDER.exists()
    assert "no Kubernetes runs" in isthmus("status", "--data", str(data)).stdout
    done = isthmus("up", "--kubernetes", "--data", str(data))
    assert done.returncode == 0, done.stderr
    assert "export KUBECONFIG=" in done.stdout
    lab = KubernetesLab(data / "kubernetes")
    found = json.loads(isthmus("status", "--data", str(data), "-o", "json").stdout)["kubernetes"]
    assert found["running"] is True
    assert list(found["nodes"].values()) == ["Ready"]
    names = subprocess.run(
        ["kubectl", "--kubeconfig", lab.place.kubeconfig, "get", "nodes", "-o", "name"], capture_output=True, text=True
    )
    assert names.stdout == f"node/{lab.place.node_name(1)}\n"
    with another_node(tmp_path) as node:
        assert isthmus("down", "--data", str(data)).returncode == 0
        assert node.communicate("\n", timeout=60)[0] == "here\n", "taken from another lab"
    assert traces(lab) == []
    if not others and not kernel.FOLDER.exists():
        assert settings() == before
    assert isthmus("down", "--erase", "--data", str(data)).returncode == 0
    assert not (data / "kubernetes").exists()


@pytest.mark.real
def test_an_api_server_alone() -> None:
    with running_api_server() as control:
        answer = subprocess.run(
            ["kubectl", "--kubeconfig", control.kubeconfig, "get", "namespaces", "-o", "name"],
            capture_output=True,
            text=True,
        )
        assert "namespace/default" in answer.stdout
        place = control.place
    assert processes.all_of(place) == []
    assert not place.root.exists()


def test_programs_are_taken_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, cache = tmp_path / "given", tmp_path / "cache"
    given.mkdir()
    with pytest.raises(Misconfigured, match="kubelet"):
        binaries.find(given)
    for name in building.PROGRAMS:
        (given / name).touch()
    assert binaries.find(given) == given
    monkeypatch.setattr(binaries, "PATH", str(tmp_path))
    assert binaries.find(None, cache) is None
    shutil.copytree(given, cache / building.VERSION)
    assert binaries.find(None, cache) == cache / building.VERSION
    (cache / building.VERSION / "kubelet").unlink()
    assert binaries.find(None, cache) is None


def test_programs_are_downloaded_or_built_by_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "PATH", str(tmp_path))
    made: list[str] = []

    def fill(kind: str, folder: Path) -> None:
        made.append(kind)
        folder.mkdir(parents=True)
        for name in building.PROGRAMS:
            (folder / name).touch()

    monkeypatch.setattr(downloading, "reachable", lambda: False)
    monkeypatch.setattr(downloading, "download", lambda folder, say: fill("download", folder))
    monkeypatch.setattr(building, "build", lambda folder, work, say: fill("build", folder))
    reported: list[str] = []
    assert binaries.ensure(None, tmp_path / "a", reported.append) == tmp_path / "a" / building.VERSION
    assert binaries.ensure(None, tmp_path / "a", reported.append) == tmp_path / "a" / building.VERSION
    monkeypatch.setattr(downloading, "reachable", lambda: True)
    assert binaries.ensure(None, tmp_path / "b", reported.append) == tmp_path / "b" / downloading.VERSION
    assert made == ["build", "download"]


def test_a_download_is_held_to_its_checksum(tmp_path: Path) -> None:
    source = tmp_path / "source" / downloading.VERSION / "bin/linux/amd64"
    source.mkdir(parents=True)
    for name in building.PROGRAMS:
        (source / name).write_text(name)
        (source / f"{name}.sha256").write_text("0" * 64)
    with pytest.raises(Misconfigured, match="checksum"):
        downloading.download(tmp_path / "kept", lambda _line: None, (tmp_path / "source").as_uri())
    assert list((tmp_path / "kept").iterdir()) == []


def test_settings_of_the_machine_are_put_back_after_the_last_lab(tmp_path: Path) -> None:
    proc, folder = tmp_path / "proc", tmp_path / "kept"
    for name in SETTINGS:
        (proc / name).parent.mkdir(parents=True, exist_ok=True)
        (proc / name).write_text("0\n")
    where = (folder, proc, tmp_path / "kubelet")
    kernel.remember(1, *where)
    (proc / SETTINGS[0]).write_text("1\n")
    kernel.remember(2, *where)
    kernel.restore(1, *where)
    assert (proc / SETTINGS[0]).read_text() == "1\n"
    assert where[2].exists()
    kernel.restore(2, *where)
    assert (proc / SETTINGS[0]).read_text() == "0"
    assert not folder.exists()
    assert not where[2].exists()


def test_a_process_is_known_from_the_moment_it_was_started(tmp_path: Path) -> None:
    place = KubernetesLabPlace(tmp_path, 1)
    for folder in ("run", "log"):
        (tmp_path / folder).mkdir()
    for _ in range(50):
        processes.spawn(place, "sleep", ["sleep", "60"])
        assert processes.pid_of(place, "sleep") is not None
        processes.kill_all(lambda: processes.all_of(place))
    processes.spawn(place, "none", ["true"])
    assert processes.wait(lambda: processes.pid_of(place, "none") is None, 30)


def test_an_archive_names_its_image(tmp_path: Path) -> None:
    (tmp_path / "layer").touch()
    images.write(tmp_path / "good.tar", [images.Image("localhost/x:1", [tmp_path / "layer"], ["sh"])])
    assert images.name_of(tmp_path / "good.tar") == "localhost/x:1"
    with pytest.raises(Misconfigured, match="podman save"):
        images.name_of(tmp_path / "layer")
