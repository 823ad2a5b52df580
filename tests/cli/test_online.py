"""The command line against a real server: jobs run, output arrives, codes are true."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.real


def eventually(condition: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def status(isthmus: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(isthmus("get", "job", name, "-o", "json").stdout)
    return found["status"]  # type: ignore[no-any-return]


def test_streams_stay_apart_and_the_code_is_the_commands(isthmus: Any) -> None:
    done = isthmus("run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_the_folder_is_there_without_what_is_ignored(isthmus: Any, work: Path) -> None:
    (work / "train.py").write_text("import os; print(sorted(os.listdir('.')))")
    (work / "secret.log").write_text("x")
    (work / ".gitignore").write_text("*.log\n")
    done = isthmus("run", "--", "python3", "train.py")
    assert done.returncode == 0, done.stderr
    assert "train.py" in done.stdout
    assert "secret.log" not in done.stdout


def test_a_script_file_with_arguments(isthmus: Any, work: Path) -> None:
    (work / "job.sh").write_text("#!/bin/sh\necho script $1 $2\n")
    assert isthmus("run", "job.sh", "a", "b").stdout == "script a b\n"


def test_outputs_come_back(isthmus: Any, work: Path) -> None:
    done = isthmus(
        "run",
        "--name",
        "outs",
        "--outputs",
        "out/*.csv",
        "--",
        "sh",
        "-c",
        "mkdir out; echo 1 > out/a.csv; echo 2 > out/b",
    )
    assert done.returncode == 0, done.stderr
    assert (work / "out" / "a.csv").read_text() == "1\n"
    assert not (work / "out" / "b").exists()
    assert isthmus("outputs", "outs", "-o", "name").stdout == "out/a.csv\n"
    assert isthmus("download", "outs", "--file", "out/a.csv").stdout == "1\n"
    assert isthmus("download", "outs", "elsewhere").returncode == 0
    assert (work / "elsewhere" / "out" / "a.csv").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sh", "-c", "kill -9 $$"], 137),
        (["-t", "1s", "--", "sleep", "60"], 124),
        (["sh", "-c", "exit 255"], 255),
        (["no-such-program-anywhere"], None),
    ],
)
def test_exit_codes(isthmus: Any, words: list[str], code: int | None) -> None:
    done = isthmus("run", "--no-files", *words)
    if code is None:
        assert done.returncode not in (0, 1)
        assert done.stderr
    else:
        assert done.returncode == code, done.stderr


def test_bytes_that_are_no_text_pass_unchanged(isthmus: Any, environment: dict[str, str], work: Path) -> None:
    words = [sys.executable, "-m", "isthmus.cli", "run", "--no-files", "--", "head", "-c", "300000", "/dev/urandom"]
    done = subprocess.run(words, env=environment, cwd=work, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert len(done.stdout) == 300_000


def test_detach_follow_and_logs(isthmus: Any) -> None:
    name = isthmus("run", "-d", "--", "sh", "-c", "echo one; sleep 0.5; echo two; echo err >&2").stdout.strip()
    followed = isthmus("logs", "-f", name)
    assert (followed.stdout, followed.stderr) == ("one\ntwo\n", "err\n")
    assert isthmus("logs", "--tail", "1", "--stream", "stdout", name).stdout == "two\n"
    assert isthmus("job", name, "--wait").returncode == 0


def test_the_wait_is_explained(isthmus: Any) -> None:
    name = isthmus("run", "-d", "-c", "4000", "--", "true").stdout.strip()
    page = eventually(lambda: "no site can run this job" in (text := isthmus("job", name).stdout).lower() and text)
    assert "Pending" in page
    assert "4000 CPUs" in page
    assert isthmus("cancel", "--wait", name).returncode == 0
    assert isthmus("job", name, "--wait").returncode == 130


def test_hold_and_release(isthmus: Any, work: Path) -> None:
    manifest = {"kind": "Job", "apiVersion": "isthmus.dev/v1", "metadata": {"generateName": "h-"},
                "spec": {"command": ["true"], "intent": "Hold"}}  # fmt: skip
    (work / "job.yaml").write_text(yaml.safe_dump(manifest))
    name = isthmus("submit", "job.yaml").stdout.split()[0].removeprefix("job/")
    assert status(isthmus, name)["phase"] == "Pending"
    assert isthmus("release", name).stdout == f"job/{name} released\n"
    assert isthmus("job", name, "--wait").returncode == 0


def test_what_is_over_is_not_changed(isthmus: Any) -> None:
    isthmus("run", "--no-files", "--name", "over", "--", "true")
    done = isthmus("cancel", "over")
    assert (done.returncode, done.stdout) == (0, "")
    assert "has already succeeded (nothing to cancel)" in done.stderr
    for word, reported in (("hold", "held"), ("release", "released")):
        done = isthmus(word, "over")
        assert done.returncode == 6
        assert f"has already succeeded and cannot be {reported}" in done.stderr
    assert json.loads(isthmus("get", "job", "over", "-o", "json").stdout)["spec"]["intent"] == "Run"


def test_logs_say_why_a_job_waits(isthmus: Any, environment: dict[str, str], work: Path) -> None:
    isthmus("run", "-d", "--no-files", "--name", "stuck", "-c", "4000", "--", "true")
    eventually(lambda: "job stuck waits: " in (done := isthmus("logs", "stuck")).stderr and "4000" in done.stderr)
    words = [sys.executable, "-m", "isthmus.cli", "logs", "-f", "stuck"]
    process = subprocess.Popen(words, env=environment, cwd=work, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stderr is not None
    assert b"job stuck waits" in process.stderr.readline()
    isthmus("cancel", "stuck")
    assert process.wait(60) == 0
    process.stderr.close()


def test_a_tenant_that_is_not_there_is_told(isthmus: Any) -> None:
    for words in (["jobs", "-n", "nosuch"], ["get", "tokens", "-n", "nosuch"]):
        done = isthmus(*words)
        assert done.returncode == 3
        assert "there is no tenant 'nosuch'" in done.stderr
    isthmus("tenants", "create", "empty")
    assert "there are no jobs" in isthmus("jobs", "-n", "empty").stderr


def test_a_name_that_is_not_there_is_told_with_what_to_do(isthmus: Any) -> None:
    isthmus("tenants", "create", "namesakes")
    isthmus("run", "-d", "--no-files", "--name", "mistyped-often", "--", "true")
    for words in (["job"], ["logs"], ["cancel"], ["outputs"], ["top"], ["get", "job"], ["delete", "job"]):
        done = isthmus(*words, "mystiped-often")
        reported = (
            "there is no job mystiped-often in tenant default; did you mean mistyped-often? `isthmus jobs -n default`"
        )
        assert (done.returncode, reported in done.stderr) == (3, True), (words, done.stderr)
    done = isthmus("cancel", "mistyped", "nothing-like-it")
    assert "there is no job mistyped in tenant default; did you mean mistyped-often?" in done.stderr, "a beginning does"
    assert "there is no job nothing-like-it in tenant default; `isthmus jobs -n default` lists them" in done.stderr
    reported = isthmus("job", "mystiped-often", "-n", "namesakes").stderr
    assert "there is no job mystiped-often in tenant namesakes; `isthmus jobs -n namesakes` lists them" in reported
    assert (
        "there is no site locale; did you mean local? `isthmus sites` lists them" in isthmus("sites", "locale").stderr
    )
    assert "there is no device class cpus; did you mean cpu? `isthmus devices`" in isthmus("devices", "cpus").stderr


def test_a_viewer_learns_which_role_it_takes(isthmus: Any, work: Path) -> None:
    isthmus("tenants", "create", "readers")
    token = isthmus("token", "create", "bob", "--role", "viewer", "-n", "readers").stdout.strip()
    (work / "a.txt").write_text("x")
    (work / "job.sh").write_text("true\n")
    isthmus("run", "-d", "--no-files", "-n", "readers", "--name", "theirs", "-c", "4000", "--", "true")
    for words in (["run", "--", "true"], ["run", "--no-files", "true"], ["submit", "job.sh"], ["cancel", "theirs"]):
        done = isthmus(*words, env={"ISTHMUS_TOKEN": token})
        assert done.returncode == 4
        assert "bob is a viewer of tenant readers" in done.stderr
        assert "takes the role member" in done.stderr


def test_watching_begins_like_the_list(isthmus: Any, environment: dict[str, str], work: Path) -> None:
    isthmus("tenants", "create", "watched")
    for name in ("zeta", "alpha", "beta"):
        isthmus("run", "-q", "-n", "watched", "--no-files", "--name", name, "--", "true")
    words = [sys.executable, "-m", "isthmus.cli", "jobs", "-w", "-n", "watched", "--limit", "2"]
    process = subprocess.Popen(words, env=environment, cwd=work, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        rows = [process.stdout.readline().split()[0] for _ in range(3)]
        assert rows == [b"NAME", b"alpha", b"beta"]
        isthmus("run", "-d", "-n", "watched", "--no-files", "--name", "later", "--", "true")
        assert process.stdout.readline().split()[0] == b"later"
    finally:
        process.terminate()
        process.communicate()


def test_sigterm_and_ctrl_c_cancel_without_a_terminal(isthmus: Any, environment: dict[str, str], work: Path) -> None:
    for number, name in ((signal.SIGTERM, "term"), (signal.SIGINT, "int")):
        words = [
            sys.executable,
            "-m",
            "isthmus.cli",
            "run",
            "--no-files",
            "--name",
            name,
            "--",
            "sh",
            "-c",
            "echo go; sleep 60",
        ]
        process = subprocess.Popen(words, env=environment, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        process.send_signal(number)
        assert process.wait(60) == 130
        process.stdout.close()
        assert status(isthmus, name)["phase"] == "Cancelled"


def _on_terminal(environment: dict[str, str], work: Path, *words: str) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "isthmus.cli", *words], env=environment, cwd=work,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    return process, ours


def _leave(process: subprocess.Popen[bytes], terminal: int) -> None:
    """Nothing is left behind, also when a test fails in the middle."""
    os.close(terminal)
    process.kill()
    process.wait(30)


def _read_until(terminal: int, text: bytes) -> bytes:
    seen = b""
    end = time.monotonic() + 60
    while text not in seen:
        assert time.monotonic() < end, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096)
    return seen


@pytest.mark.parametrize(("answer", "phase", "code"), [(b"d\n", "Running", 0), (b"c\n", "Cancelled", 130)])
def test_ctrl_c_asks(
    isthmus: Any, environment: dict[str, str], work: Path, answer: bytes, phase: str, code: int
) -> None:
    name = f"ask-{phase.lower()}"
    process, terminal = _on_terminal(
        environment, work, "run", "--no-files", "--name", name, "--", "sh", "-c", "echo go; sleep 60"
    )
    try:
        _read_until(terminal, b"go")
        process.send_signal(signal.SIGINT)
        _read_until(terminal, b"to go on?")
        os.write(terminal, answer)
        assert process.wait(60) == code
    finally:
        _leave(process, terminal)
    assert status(isthmus, name)["phase"] == phase
    isthmus("cancel", name)


def test_output_waits_while_ctrl_c_asks(isthmus: Any, environment: dict[str, str], work: Path) -> None:
    line = "echo go; while test ! -e stop; do echo tick; sleep 0.05; done"
    process, terminal = _on_terminal(environment, work, "run", "--no-files", "--name", "quiet", "--", "sh", "-c", line)
    try:
        _read_until(terminal, b"tick")
        process.send_signal(signal.SIGINT)
        seen = _read_until(terminal, b"to go on? ")
        # The job goes on writing; ten of its lines are in its log before anything is answered.
        before = isthmus("logs", "quiet").stdout.count("tick")
        eventually(lambda: isthmus("logs", "quiet").stdout.count("tick") > before + 10)
        while select.select([terminal], [], [], 0)[0]:
            seen += os.read(terminal, 4096)
        assert seen.endswith(b"to go on? ")
        os.write(terminal, b"\n")
        assert _read_until(terminal, b"tick")
        process.send_signal(signal.SIGINT)
        _read_until(terminal, b"to go on?")
        os.write(terminal, b"c\n")
        assert process.wait(60) == 130
    finally:
        _leave(process, terminal)


@pytest.mark.parametrize("words", [["tenants", "delete"], ["delete", "tenant"]])
def test_a_tenants_name_is_asked_for(isthmus: Any, environment: dict[str, str], work: Path, words: list[str]) -> None:
    name = f"gone-{words[0]}"
    for answer, code in ((b"yes\n", 1), (name.encode() + b"\n", 0)):
        isthmus("tenants", "create", name)
        process, terminal = _on_terminal(environment, work, *words, name)
        try:
            _read_until(terminal, b"Type its name")
            os.write(terminal, answer)
            assert process.wait(60) == code
        finally:
            _leave(process, terminal)
        if code:
            assert isthmus("get", "tenant", name).returncode == 0
    process, terminal = _on_terminal(environment, work, *words, "--yes", "no-such-tenant")
    try:
        assert b"Type" not in _read_until(terminal, b"no-such-tenant")
        assert process.wait(60) == 3
    finally:
        _leave(process, terminal)


def test_a_tenant_is_deleted_without_a_word_where_nobody_is_asked(isthmus: Any) -> None:
    isthmus("tenants", "create", "unasked")
    assert isthmus("tenants", "delete", "unasked").stdout == "tenant/unasked deleted\n"


def test_a_second_ctrl_c_cancels(isthmus: Any, environment: dict[str, str], work: Path) -> None:
    process, terminal = _on_terminal(
        environment, work, "run", "--no-files", "--name", "twice", "--", "sh", "-c", "echo go; sleep 60"
    )
    try:
        _read_until(terminal, b"go")
        process.send_signal(signal.SIGINT)
        _read_until(terminal, b"to go on?")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        _leave(process, terminal)
    assert status(isthmus, "twice")["phase"] == "Cancelled"


def test_a_reader_that_leaves_ends_the_job(isthmus: Any, environment: dict[str, str], work: Path) -> None:
    line = f"{sys.executable} -m isthmus.cli run --no-files --name pipe -- yes | head -2"
    done = subprocess.run(["bash", "-c", line], env=environment, cwd=work, capture_output=True, timeout=60, check=False)
    assert done.stdout == b"y\ny\n"
    assert b"Traceback" not in done.stderr
    eventually(lambda: status(isthmus, "pipe")["phase"] == "Cancelled")


def test_a_reader_that_leaves_ends_following_both_streams(
    isthmus: Any, environment: dict[str, str], work: Path
) -> None:
    spec = {"command": ["sh", "-c", "while :; do echo out; sleep 0.1; done"], "streams": "Separate"}
    manifest = {"apiVersion": "isthmus.dev/v1", "kind": "Job", "metadata": {"name": "endless"}, "spec": spec}
    (work / "endless.yaml").write_text(json.dumps(manifest))
    assert isthmus("submit", "endless.yaml").returncode == 0
    line = f"{sys.executable} -m isthmus.cli logs -f endless | head -2"
    done = subprocess.run(["bash", "-c", line], env=environment, cwd=work, capture_output=True, timeout=60, check=False)
    assert done.stdout == b"out\nout\n"
    assert b"Traceback" not in done.stderr
    assert isthmus("delete", "job", "endless").returncode == 0


def test_arrays(isthmus: Any) -> None:
    done = isthmus(
        "run", "--name", "arr", "--array", "0-2%2", "--no-files", "--", "sh", "-c", "echo el $ISTHMUS_ARRAY_INDEX"
    )
    assert done.returncode == 0, done.stderr
    assert "3 succeeded" in done.stderr
    assert isthmus("logs", "arr").stdout == "el 0\nel 1\nel 2\n"


def test_apply_get_delete(isthmus: Any, work: Path) -> None:
    manifest = "apiVersion: isthmus.dev/v1\nkind: DeviceClass\nmetadata: {name: akida}\nspec: {vendor: BrainChip}\n"
    (work / "d.yaml").write_text(manifest)
    assert isthmus("apply", "-f", "d.yaml").stdout == "deviceclass/akida created\n"
    assert isthmus("apply", "-f", "d.yaml").stdout == "deviceclass/akida unchanged\n"
    changed = manifest.replace("BrainChip", "Other")
    assert isthmus("apply", "-f", "-", input=changed).stdout == "deviceclass/akida configured\n"
    assert yaml.safe_load(isthmus("devices", "akida", "-o", "yaml").stdout)["spec"]["vendor"] == "Other"
    fewer = changed.replace("spec: {vendor: Other}", "spec: {}")
    isthmus("apply", "-f", "-", input=fewer)
    assert yaml.safe_load(isthmus("devices", "akida", "-o", "yaml").stdout)["spec"]["vendor"] == ""
    assert "akida" in isthmus("devices").stdout
    assert isthmus("delete", "-f", "d.yaml").stdout == "deviceclass/akida deleted\n"
    assert isthmus("delete", "deviceclass", "akida").returncode == 3
    assert isthmus("delete", "deviceclass", "akida", "--ignore-not-found").returncode == 0


def test_bad_input_is_told_by_field(isthmus: Any) -> None:
    done = isthmus("run", "--no-files", "-c", "many", "--", "true")
    assert done.returncode == 2
    assert "cpus" in done.stderr
    assert "2, 0.5 or 500m" in done.stderr


def test_tenants_tokens_login_and_isolation(isthmus: Any, server: Any, work: Path, environment: dict[str, str]) -> None:
    assert isthmus("tenants", "create", "physics").returncode == 0
    assert isthmus("tenants", "add", "physics", "ada", "--role", "viewer").returncode == 0
    assert "ada(viewer)" in isthmus("tenants").stdout
    made = isthmus("token", "create", "ada", "--role", "member", "-n", "physics", "-o", "json")
    token = json.loads(made.stdout)
    assert token["token"].startswith("ist_")
    nobody = {"ISTHMUS_URL": "", "ISTHMUS_TOKEN": ""}
    signed = isthmus("login", "--url", server.url, input=token["token"] + "\n", env=nobody)
    assert signed.returncode == 0, signed.stderr
    assert "tenant physics" in signed.stdout
    assert token["token"] not in signed.stdout + signed.stderr
    kept = Path(environment["HOME"]) / ".config" / "isthmus" / "kubeconfig"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "member in physics" in isthmus("whoami", env=nobody).stdout
    done = isthmus("run", "--no-files", "--", "echo", "hello", env=nobody)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert isthmus("jobs", "-n", "default", env=nobody).returncode == 4
    listed = subprocess.run(
        ["kubectl", "--kubeconfig", str(kept), "get", "jobs.isthmus.dev"], capture_output=True, text=True, check=False
    )
    assert "Succeeded" in listed.stdout, listed.stderr
    assert isthmus("token", "revoke", token["name"], "-n", "physics").returncode == 0
    eventually(lambda: isthmus("jobs", env=nobody).returncode == 4)


def test_names_are_completed_from_the_server(isthmus: Any) -> None:
    isthmus("run", "--no-files", "--name", "complete-me", "--", "true")
    env = {"_ISTHMUS_COMPLETE": "complete_bash", "COMP_WORDS": "isthmus logs comp", "COMP_CWORD": "2"}
    assert isthmus(env=env).stdout.split() == ["complete-me"]


def test_doctor_and_version_with_a_server(isthmus: Any) -> None:
    checks = {c["name"]: c["result"] for c in json.loads(isthmus("doctor", "-o", "json").stdout)["checks"]}
    assert checks["server"] == checks["token"] == checks["clock"] == "ok"
    assert json.loads(isthmus("version", "-o", "json").stdout)["server"]


def test_the_python_client_does_the_same(isthmus: Any, server: Any, tmp_path: Path) -> None:
    from isthmus import Client

    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "in.txt").write_text("content")
    with Client(server.url, server.token) as client:
        job = client.run(["sh", "-c", "cat in.txt; echo r > r.txt"], files=tmp_path / "f", outputs=["r.txt"])
        assert b"".join(job.logs(follow=True)) == b"content"
        assert job.wait().exit_code == 0
        assert job.download(tmp_path / "back") == ["r.txt"]
        assert client.read_output(job.name, "r.txt") == job.read_output("r.txt") == b"r\n"
        assert job.name in [found.name for found in client.jobs(phase="Succeeded")]
        eventually(lambda: "Succeeded" in {event["reason"] for event in client.events(job.name)})


@pytest.mark.anyio
async def test_the_async_client_does_the_same(server: Any, isthmus: Any, tmp_path: Path) -> None:
    from isthmus import AsyncClient

    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "in.txt").write_text("content")
    async with AsyncClient(server.url, server.token) as client:
        job = await client.run(["sh", "-c", "cat in.txt; echo r > r.txt"], files=tmp_path / "f", outputs=["r.txt"])
        assert b"".join([chunk async for chunk in job.logs(follow=True)]) == b"content"
        assert (await job.wait()).exit_code == 0
        assert await job.download(tmp_path / "back") == ["r.txt"]
        assert await job.read_output("r.txt") == b"r\n"


def test_following_survives_the_death_of_the_server(environment: dict[str, str], tmp_path: Path) -> None:
    """Killed in the middle and started again on the same port: every byte arrives once, and the true exit code."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
    data = tmp_path / "instance"
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    words = [sys.executable, "-m", "isthmus.cli", "serve", "--data", str(data), "--listen", listen]

    def serve() -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            started = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        eventually(lambda: (data / "instance.json").exists() and (data / "admin.token").exists(), 60)
        return started

    server = serve()
    try:
        environment |= {"ISTHMUS_URL": f"http://{listen}", "ISTHMUS_TOKEN": (data / "admin.token").read_text().strip()}
        script = "i=0; while [ $i -lt 60 ]; do echo line $i; i=$((i+1)); sleep 0.1; done; exit 7"
        run = subprocess.Popen(
            [sys.executable, "-m", "isthmus.cli", "run", "--no-files", "--", "sh", "-c", script],
            env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert run.stdout is not None
        assert run.stdout.readline() == b"line 0\n"
        server.kill()
        server.wait()
        (data / "instance.json").unlink(missing_ok=True)
        server = serve()
        rest = run.stdout.read()
        assert rest.split(b"\n")[:-1] == [b"line %d" % i for i in range(1, 60)]
        assert run.wait(60) == 7
        run.stdout.close()
    finally:
        server.terminate()
        server.wait(30)


def test_output_files_of_a_batch_script_come_back(isthmus: Any, work: Path) -> None:
    (work / "job.sh").write_text(
        "#!/bin/sh\n#SBATCH --job-name=train\n#SBATCH --output=logs/%x_%a.out\n#SBATCH --error=err.txt\n"
        "echo to out\necho to err >&2\n"
    )
    done = isthmus("run", "--name", "batch-files", "job.sh")
    assert (done.returncode, done.stdout) == (0, "to out\n"), done.stderr
    assert (work / "logs" / "batch-files_4294967294.out").read_text() == "to out\n"
    assert (work / "err.txt").read_text() == "to err\n"


def test_a_failed_array_tells_why_its_first_element_failed(isthmus: Any) -> None:
    done = isthmus("run", "--no-files", "--name", "some-fail", "--array", "0-2", "--", "sh", "-c",
                   "exit $((ISTHMUS_ARRAY_INDEX * 3))")  # fmt: skip
    assert done.returncode == 1
    assert "2 of 3 elements failed; the first, some-fail-1:" in status(isthmus, "some-fail")["message"]
