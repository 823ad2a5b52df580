"""The words after `isthmus run`, read without Typer. Pure.

`read_words` understands what people write every day and answers None for anything else (a help option, a misspelt
one, a missing value): then Typer reads the same words, and explains. `run.py` is the full definition; a test holds
the two tables of options together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class RunOptions(NamedTuple):
    """Everything that `isthmus run` may be told."""

    words: tuple[str, ...] = ()
    name: str | None = None
    files: str | None = None
    no_files: bool = False
    device: tuple[str, ...] = ()
    cpus: str | None = None
    memory: str | None = None
    nodes: int | None = None
    tasks: int | None = None
    time: str | None = None
    site: tuple[str, ...] = ()
    where: str | None = None
    env: tuple[str, ...] = ()
    image: str | None = None
    array: str | None = None
    after: tuple[str, ...] = ()
    outputs_of: tuple[str, ...] = ()
    retries: int | None = None
    priority: int | None = None
    deadline: str | None = None
    late_cost: float | None = None
    any_device: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    restartable: bool = False
    state: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    detach: bool = False
    quiet: bool = False
    namespace: str | None = None
    url: str | None = None
    token: str | None = None
    output: str | None = None


FLAGS = {
    "--name": "name",
    "--files": "files",
    "--no-files": "no_files",
    "--device": "device",
    "--cpus": "cpus",
    "-c": "cpus",
    "--memory": "memory",
    "-m": "memory",
    "--nodes": "nodes",
    "--tasks": "tasks",
    "--time": "time",
    "-t": "time",
    "--site": "site",
    "--where": "where",
    "--env": "env",
    "-e": "env",
    "--image": "image",
    "--array": "array",
    "--after": "after",
    "--from": "outputs_of",
    "--retries": "retries",
    "--priority": "priority",
    "--deadline": "deadline",
    "--late-cost": "late_cost",
    "--any-device": "any_device",
    "--expect": "expect",
    "--restartable": "restartable",
    "--state": "state",
    "--keep": "keep",
    "--output-files": "keep",
    "--detach": "detach",
    "-d": "detach",
    "--quiet": "quiet",
    "-q": "quiet",
    "--namespace": "namespace",
    "-n": "namespace",
    "--url": "url",
    "--token": "token",
    "--output": "output",
    "-o": "output",
}
_SWITCHES = frozenset({"no_files", "restartable", "detach", "quiet"})
_MANY = frozenset({"device", "any_device", "expect", "state", "site", "env", "after", "outputs_of", "keep"})
FORMATS = frozenset({"table", "wide", "json", "yaml", "name"})
_NUMBERS = frozenset({"nodes", "tasks", "retries", "priority"})


def read_words(words: Sequence[str]) -> RunOptions | None:
    """The options and the command in these words, or None if they need a better reader."""
    found: dict[str, Any] = {}
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if not word.startswith("-") or word == "-":
            break
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        field = FLAGS.get(flag)
        at += 1
        if field is None or (field in _SWITCHES and equals):
            return None
        if field in _SWITCHES:
            found[field] = True
            continue
        if not equals:
            if at >= len(words) or words[at].startswith("-"):
                return None
            value = words[at]
            at += 1
        if field in _NUMBERS:
            if not value.isdigit():
                return None
            found[field] = int(value)
        elif field == "late_cost":
            return None  # a number with a point: Typer reads it
        elif field == "output" and value not in FORMATS:
            return None
        elif field in _MANY:
            found[field] = (*found.get(field, ()), value)
        else:
            found[field] = value
    if at >= len(words):
        return None
    return RunOptions(words=tuple(words[at:]), **found)
