"""The command line without a server: help, usage, errors, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus import errors
from isthmus.cli.app import COMMANDS, build
from isthmus.cli.failures import exit_code


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_with_an_example(name: str) -> None:
    command = build(name, COMMANDS[name])
    assert command.help
    group = getattr(command, "commands", None)
    text = " ".join([command.help, *(sub.help or "" for sub in (group or {}).values())])
    assert f"isthmus {name}" in text


def test_help_lists_every_command_and_the_exit_codes(offline: Any) -> None:
    done = offline("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert "5 the server does not answer" in " ".join(done.stdout.split())


@pytest.mark.parametrize("word", ["run", "token", "jobs"])
def test_help_of_a_command(offline: Any, word: str) -> None:
    done = offline(word, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: isthmus " + word in done.stdout


def test_without_a_server_the_remedy_is_told(offline: Any, tmp_path: Path) -> None:
    for words in (["jobs"], ["run", "--", "true"], ["get", "sites"]):
        done = offline(
            *words, env={"ISTHMUS_URL": "http://127.0.0.1:1", "ISTHMUS_TOKEN": "ist_x_y", "ISTHMUS_NAMESPACE": "n"}
        )
        assert done.returncode == 5, done.stderr
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert "nothing listens there" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jbs"], "did you mean jobs?"),
        (["run", "--cpu", "3", "--", "true"], "--cpu"),
        (["run"], "Missing argument"),
        (["jobs", "--phase", "Sleeping"], "the phases are"),
        (["get", "pods"], "the kinds are"),
        (["apply"], "-f FILE"),
        (["apply", "-f", "missing.yaml"], "missing.yaml"),
        (["delete", "jobs"], "which jobs?"),
        (["delete"], "isthmus delete KIND NAME, or isthmus delete -f FILE"),
        (["run", "-o", "json", "--", "true"], "--outputs PATTERN"),
        (["login"], "--url"),
        (["completion", "tcsh"], "bash, zsh or fish"),
    ],
)
def test_wrong_words_are_explained(offline: Any, words: list[str], said: str) -> None:
    done = offline(
        *words, env={"ISTHMUS_URL": "" if words == ["login"] else "http://127.0.0.1:1", "ISTHMUS_TOKEN": "ist_x_y"}
    )
    assert done.returncode in (1, 2, 3)
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(offline: Any, shell: str) -> None:
    done = offline("completion", shell)
    assert done.returncode == 0
    assert "_ISTHMUS_COMPLETE" in done.stdout
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False).returncode == 0


def test_completion_of_commands_and_silence_without_a_server(offline: Any) -> None:
    env = {"_ISTHMUS_COMPLETE": "complete_bash", "COMP_WORDS": "isthmus ca", "COMP_CWORD": "1"}
    assert offline(env=env).stdout.split() == ["cancel"]
    env |= {"COMP_WORDS": "isthmus logs x", "COMP_CWORD": "2", "ISTHMUS_URL": "http://127.0.0.1:1"}
    done = offline(env=env)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_doctor_works_without_a_server(offline: Any) -> None:
    done = offline("doctor", "-o", "json", env={"ISTHMUS_URL": "http://127.0.0.1:1"})
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert {"python", "sandbox", "cgroups", "postgres", "server"} <= set(checks)
    assert checks["server"]["result"] == "fail"
    assert checks["server"]["remedy"]
    assert done.returncode == 1


@pytest.mark.parametrize(("option", "hint"), [("", True), (" '--enable-optimizations'", False)])
def test_a_slow_interpreter_is_hinted_at(option: str, hint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.cli.platform import checks

    built = {"CONFIG_ARGS": f"'--prefix=/home/a/.pyenv/versions/3.12.1'{option}"}
    monkeypatch.setattr(checks.sysconfig, "get_config_vars", lambda: built)
    found = checks.python_check()
    assert (found.result, "--enable-optimizations" in found.remedy) == ("ok", hint)


def test_the_disk_is_that_of_an_instance_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.cli.platform import checks

    monkeypatch.setattr(checks, "local_instance", lambda _: tmp_path / "instance")
    assert "disk" not in [check.name for check in checks.machine_checks({})]
    (tmp_path / "instance").mkdir()
    disk = next(check for check in checks.machine_checks({}) if check.name == "disk")
    assert str(tmp_path / "instance") in disk.message


def test_half_a_token_is_noticed_here(offline: Any) -> None:
    done = offline("jobs", env={"ISTHMUS_URL": "http://127.0.0.1:1", "ISTHMUS_TOKEN": "bogus"})
    assert done.returncode == 4
    assert "ist_NAME_SECRET" in done.stderr


def test_version(offline: Any) -> None:
    from isthmus import __version__

    assert offline("--version").stdout == f"isthmus {__version__}\n"


def test_a_fault_of_ours_is_one_line_unless_debugging(offline: Any) -> None:
    code = (
        "import isthmus.cli.app as a, isthmus.cli as c, sys; a.call = lambda w: 1 / 0; sys.argv[1:] = ['x']; c.main()"
    )

    def call(debug: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": "/usr/bin:/bin", "ISTHMUS_DEBUG": debug}
        return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)

    assert call("").stderr.startswith("isthmus: this is a fault in Isthmus (ZeroDivisionError")
    assert call("").returncode == 1
    assert "Traceback" in call("1").stderr


def test_every_error_has_its_exit_code() -> None:
    expected = {
        "Invalid": 2, "TooLarge": 2, "NotFound": 3, "Unauthenticated": 4, "Forbidden": 4, "Unavailable": 5,
        "StoreUnavailable": 5, "SiteUnavailable": 5, "Superseded": 5, "Unreachable": 5, "Expired": 5, "Conflict": 6,
        "AlreadyExists": 6, "EngineRefused": 1, "Misconfigured": 1, "IsthmusError": 1, "JobFailed": 1,
        "HostUnavailable": 5, "HostRefused": 1, "PortClosed": 5,
    }  # fmt: skip
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.IsthmusError):
            assert exit_code(value("x")) == expected[name], name


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_fault(closed: str, environment: dict[str, str]) -> None:
    line = f"{sys.executable} -m isthmus.cli jobs --url http://127.0.0.1:1 --token ist_a_b {closed}"
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5, done.stderr
    assert "fault in Isthmus" not in done.stderr
