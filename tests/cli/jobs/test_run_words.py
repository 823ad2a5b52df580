"""The fast reader of `isthmus run` reads what Typer reads, or nothing."""

from __future__ import annotations

import signal

import pytest

from isthmus.cli.app import COMMANDS, build, call
from isthmus.cli.jobs import interrupting, running
from isthmus.cli.jobs.run_words import FLAGS, RunOptions, read_words

LINES = [
    ["--", "true"],
    ["true"],
    ["true", "--name", "x", "-c", "3"],
    ["--name", "x", "--", "python", "train.py", "--epochs", "3", "--", "-v"],
    ["-c", "4", "-m", "8Gi", "-t", "1h", "--outputs", "out/*", "--outputs", "b", "./simulate"],
    ["-d", "-o", "json", "x"],
    ["--detach", "--output=name", "x"],
    ["--cpus=0.5", "--where=location == IT", "--env", "A=1", "-e", "B", "x"],
    ["--device", "akida:2", "--device", "cpu", "--site", "a", "--site", "b", "-d", "-q", "--no-files", "x"],
    ["--array", "0-9%3", "--after", "a:finished", "--retries", "2", "--priority", "5", "--deadline", "2h", "x"],
    ["--nodes", "2", "--tasks", "4", "--image", "debian:12", "--files", "src", "-n", "lab", "x", "-"],
    ["--url", "http://x", "--token", "t", "--namespace", "n", "--", "-x"],
    ["--from", "a", "--from=b:data", "--site", "any", "x"],
    ["--name=", "x"],
]


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_both_readers_agree(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RunOptions] = []

    def note(options: RunOptions) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(running, "run", note)
    assert call(["run", *words]) == 0
    assert read_words(words) == seen[0]


@pytest.mark.parametrize(
    "words",
    [
        [], ["--help"], ["-h"], ["--cpu", "3", "x"], ["--cpus"], ["--cpus", "-x", "y"], ["--nodes", "two", "x"],
        ["--detach=yes", "x"], ["-c4", "x"], ["-dq", "x"], ["--name", "x"], ["--name", "x", "--"],
        ["--priority", "-5", "x"], ["-o", "out/*.csv", "x"],
    ],
    ids=str,
)  # fmt: skip
def test_what_needs_explaining_is_left_to_typer(words: list[str]) -> None:
    assert read_words(words) is None


def test_both_know_the_same_options() -> None:
    command = build("run", COMMANDS["run"])
    known = {flag: p.name for p in command.params for flag in p.opts if flag.startswith("-") and p.name != "help"}
    assert known == FLAGS
    assert {*FLAGS.values(), "words"} == set(RunOptions._fields)


def test_a_second_sigterm_does_not_interrupt_the_cancelling() -> None:
    """timeout(1) sends it twice: to the process, and to its group."""
    before = signal.signal(signal.SIGTERM, interrupting.terminated)
    try:
        with pytest.raises(interrupting.Terminated):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
