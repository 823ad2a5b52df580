"""What a hostile job can reach: nothing of the platform's, nothing of another's, and nothing that stays."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.testing.servers import ServerProcess, eventually

from .conftest import ask

pytestmark = pytest.mark.real

SECRET = "kept-from-jobs"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a secret in its environment."""
    made = ServerProcess(tmp_path_factory.mktemp("server") / "data", environment={"SOME_SECRET": SECRET})
    made.start()
    yield made
    made.stop()


def run(server: ServerProcess, name: str, script: str, **spec: object) -> str:
    """What a script writes."""
    server.submit(name, script=script, **spec)
    server.finished(name)
    return server.output(name)


def test_a_job_sees_none_of_the_platforms_files(server: ServerProcess) -> None:
    paths = [server.data / name for name in ("admin.token", "isthmus.db", "kubeconfig", "tls/ca.key", "files", "sites")]
    script = "\n".join(f'[ -e "{path}" ] && cat "{path}"' for path in paths)
    token = server.token
    found = run(server, "files", f"{script}; ls -la / /root /home /run /var /tmp 2>&1; echo over")
    assert token not in found
    assert "admin.token" not in found
    assert found.endswith("over\n")


def test_a_job_sees_only_its_own_processes_and_no_secret_of_the_server(server: ServerProcess) -> None:
    assert server.process is not None
    script = (
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls /proc | grep -c '^[0-9]'; env"
    )
    found = run(server, "processes", script)
    assert SECRET not in found
    assert str(server.data / "admin.token") not in found
    run(server, "killing", f"kill -9 {server.process.pid} 2>&1; kill -9 -1 2>&1")
    assert server.process.poll() is None
    assert server.ready()


def test_a_job_has_no_rights_to_gain(server: ServerProcess) -> None:
    script = """
    id -u; grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status
    mount -t tmpfs none /tmp 2>/dev/null && echo MOUNTED
    mknod /tmp/disk b 8 0 2>/dev/null && echo DEVICE
    cp /bin/sh /job/sh; chmod 4755 /job/sh; /job/sh -p -c 'id -u'
    for place in /usr/x /etc/x /sys/x /x /run/x /proc/sys/kernel/hostname /run/isthmus/x; do
        (echo x > $place) 2>/dev/null && echo WROTE $place
    done
    for group in /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs; do
        (echo $$ > $group) 2>/dev/null && echo ESCAPED $group
    done
    chroot / true 2>/dev/null && echo CHROOT
    echo over
    """
    found = run(server, "rights", script).split("\n")
    assert not [line for line in found if line.startswith(("MOUNTED", "DEVICE", "WROTE", "ESCAPED", "CHROOT"))]
    if os.geteuid() == 0:
        assert found[0] != "0"
        assert found.count(found[0]) == 2, "a setuid copy gives no other uid"
    assert [line.split()[1] for line in found if line.startswith("Cap")] == ["0" * 16] * 2
    assert "NoNewPrivs:\t1" in found


def test_the_api_on_the_loopback_is_not_there_for_jobs(server: ServerProcess) -> None:
    script = f"""
    exec 9<>/dev/tcp/127.0.0.1/{server.port}
    printf 'GET /apis/isthmus.dev/v1/jobs HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n' >&9; cat <&9
    """
    assert "Connection refused" in run(server, "loopback", f"#!/bin/bash\n{script}")


def test_the_descriptors_of_the_supervisor_are_not_passed_on(server: ServerProcess) -> None:
    server.submit("descriptors", "ls", "/proc/self/fd")
    server.finished("descriptors")
    assert set(server.output("descriptors").split()) <= {"0", "1", "2", "3"}, (
        "0 to 2, and the one that the list itself is read from"
    )


def test_tenants_run_apart(server: ServerProcess) -> None:
    ask(server, "POST", "/apis/isthmus.dev/v1/tenants", {"metadata": {"name": "other"}, "spec": {}})
    server.submit("mine", script="id -u; echo secret > mine; echo secret > /tmp/mine; sleep 600")
    eventually(lambda: server.output("mine"))
    runs = server.data / "sites/local/runs"
    script = f"id -u; cat /tmp/mine {runs}/*/work/mine {runs}/*/stdout.log 2>&1; ls {runs} 2>&1; ls /dev/shm; echo over"
    eventually(lambda: ask(server, "GET", "/apis/isthmus.dev/v1/tenants/other").object["status"].get("uidNumber"))
    server.submit("theirs", script=script, namespace="other")
    assert server.finished("theirs", "other")["phase"] == "Succeeded"
    found = server.output("theirs", "other")
    assert "secret" not in found
    if os.geteuid() == 0:
        assert found.split("\n")[0] != server.output("mine").split("\n")[0]
    server.patch("mine", intent="Cancel")


# Jobs that misbehave


def test_a_job_that_ignores_the_asking_is_killed(server: ServerProcess) -> None:
    server.submit("deaf", script="trap '' TERM INT HUP; echo deaf; while true; do sleep 1; done")
    eventually(lambda: server.output("deaf") == "deaf\n")
    server.patch("deaf", intent="Cancel")
    assert server.finished("deaf")["phase"] == "Cancelled"


def test_a_fork_bomb_stays_within_its_limits(server: ServerProcess) -> None:
    script = "bomb() { bomb | bomb & }; bomb; sleep 600"
    server.submit("bomb", script=script, resources={"timeLimit": "2s", "memory": "256Mi"})
    status = server.finished("bomb", timeout=90)
    assert status["phase"] == "Failed"
    assert run(server, "after-the-bomb", "echo alive") == "alive\n"


@pytest.mark.parametrize(
    ("name", "closing"),
    [("closed", "exec 1>&- 2>&-"), ("full", "exec 1>/dev/full"), ("all-closed", "exec 0<&- 1<&- 2<&-")],
)
def test_a_job_without_output_ends_as_it_ends(server: ServerProcess, name: str, closing: str) -> None:
    server.submit(name, script=f"echo before; {closing}; sleep 0.2; exit 5")
    assert server.finished(name)["exitCode"] == 5
    assert server.output(name) == "before\n"


def test_output_that_is_no_text_comes_back_as_it_is(server: ServerProcess) -> None:
    server.submit("binary", script="printf '\\377\\376\\000\\001caf\\303'; printf '\\303\\251\\r\\n\\033[31m'")
    server.finished("binary")
    path = f"{server.jobs()}/binary/log"
    assert ask(server, "GET", path).body == b"\xff\xfe\x00\x01caf\xc3\xc3\xa9\r\n\x1b[31m"
    events = ask(server, "GET", f"{path}?follow=true", Accept="text/event-stream")
    assert "\\u0000\\u0001caf" in events.body.decode()
    assert "é" in events.body.decode()


# Folders that hurt


def test_folders_and_names_made_to_hurt_are_left_out_or_removed(server: ServerProcess) -> None:
    script = """
    ln -s /etc/shadow shadow; ln -s ../../../../../../etc/passwd up; mkfifo pipe; mkdir -p deep
    ln /etc/passwd hard 2>/dev/null
    printf x > "$(printf 'bad\\377name')"; printf x > "with
newline"; printf x > plain
    cd deep; i=0; while [ $i -lt 300 ]; do mkdir d 2>/dev/null && cd d || break; i=$((i+1)); done
    echo bottom > end
    chmod 000 /job
    """
    server.submit("hurtful", script=script, outputs=["*", "deep"])
    status = server.finished("hurtful")
    assert status["phase"] == "Succeeded"
    listed = ask(server, "GET", f"{server.jobs()}/hurtful/outputs").object
    assert {"plain"} <= {file["path"] for file in listed["files"]} <= {"plain", "with\nnewline"}
    reported = " ".join(status["outputs"]["skipped"])
    assert "shadow" in reported
    assert "pipe" in reported
    ask(server, "DELETE", f"{server.jobs()}/hurtful")
    eventually(lambda: ask(server, "GET", f"{server.jobs()}/hurtful").code == 404)


def test_what_is_in_the_data_folder_is_the_owners_however_the_server_was_started(tmp_path: Path) -> None:
    for mask in ("000", "077"):
        server = ServerProcess(tmp_path / f"data{mask}")
        words = [sys.executable, "-m", "isthmus.cli", "serve", "--data", str(server.data)]
        command = ["sh", "-c", f'umask {mask}; exec "$@"', "sh", *words, "--listen", f"127.0.0.1:{server.port}"]
        with server.log.open("ab") as log:
            server.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            eventually(server.ready)
            server.submit("job", script="echo x > kept; umask", outputs=["kept"])
            assert server.finished("job")["phase"] == "Succeeded"
            assert server.output("job") == "0022\n"
            check_modes(server.data)
        finally:
            server.stop()


def check_modes(data: Path) -> None:
    for path in [data, *data.rglob("*")]:
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            continue
        mode = stat.S_IMODE(info.st_mode)
        assert not mode & 0o066, f"{path} can be read or written by others ({mode:o})"
        if not stat.S_ISDIR(info.st_mode):
            assert not mode & 0o077, f"{path} is open to others ({mode:o})"
