"""The words after `isthmus run`, read without Typer.

`read_words` understands what people write every day and answers None for anything else (a help option, a misspelt
one, a missing value): then Typer reads the same words, and explains. `run.py` is the full definition; a test holds
the two tables of options together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

SCRIPTS = (".py", ".sh", ".sbatch", ".slurm")
"""How the names of scripts end."""


class RunOptions(NamedTuple):
    """Everything that `isthmus run` may be given."""

    words: tuple[str, ...] = ()
    name: str | None = None
    files: str | None = None
    no_files: bool = False
    stdin: bool = False
    no_stdin: bool = False
    device: tuple[str, ...] = ()
    gpus: int | None = None
    cpus: str | None = None
    memory: str | None = None
    nodes: int | None = None
    tasks: int | None = None
    time: str | None = None
    site: tuple[str, ...] = ()
    where: str | None = None
    env: tuple[str, ...] = ()
    image: str | None = None
    requirements: str | None = None
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
    checkpoint: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    force: bool = False
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
    "--stdin": "stdin",
    "-i": "stdin",
    "--no-stdin": "no_stdin",
    "--device": "device",
    "--gpus": "gpus",
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
    "--requirements": "requirements",
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
    "--checkpoint": "checkpoint",
    "--outputs": "outputs",
    "--force": "force",
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
OLD_SPELLINGS = {"--keep": "--outputs", "--output-files": "--outputs", "--state": "--checkpoint"}
"""Still understood, with a hint, until the next version."""
_SWITCHES = frozenset({"no_files", "stdin", "no_stdin", "restartable", "force", "detach", "quiet"})
_MANY = frozenset({"device", "any_device", "expect", "checkpoint", "site", "env", "after", "outputs_of", "outputs"})
FORMATS = frozenset({"table", "wide", "json", "yaml", "name"})
_NUMBERS = frozenset({"gpus", "nodes", "tasks", "retries", "priority"})


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


def current_spellings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words with today's names of options, and a hint for each old one."""
    end = _first_plain(words)
    found, hints = list(words), []
    for at, word in enumerate(words[:end]):
        flag, equals, value = word.partition("=")
        if new := OLD_SPELLINGS.get(flag):
            found[at] = f"{new}{equals}{value}"
            hints.append(f"{flag} is called {new} now; the old name will be removed in the next version")
    return found, hints


def is_script(word: str) -> bool:
    """Whether a first word names a script: a file here, and no program.

    A plain name is a program if it is on the PATH; a path is one if the file is executable, or not known as a script.
    """
    if not os.path.isfile(word):  # noqa: PTH113
        return False
    if "/" in word:
        return word.endswith(SCRIPTS) and not os.access(word, os.X_OK)
    from shutil import which

    return which(word) is None


def ours_first(words: Sequence[str], script: Callable[[str], bool] = is_script) -> tuple[list[str], list[str]]:
    """`job.sh --site X` as `--site X job.sh`, and the options that were moved.

    Options of `isthmus run` behind the name of a script are meant for `isthmus run`, unless `--` comes before them.
    """
    at = _first_plain(words)
    if at >= len(words) or words[at] == "--" or not script(words[at]):
        return list(words), []
    moved: list[str] = []
    left: list[str] = []
    rest = list(words[at + 1 :])
    while rest:
        word = rest.pop(0)
        if word == "--":
            left += rest
            break
        flag, equals, _ = word.partition("=") if word.startswith("--") else (word, "", "")
        field = FLAGS.get(flag)
        if field is None:
            left.append(word)
            continue
        moved.append(word)
        if field not in _SWITCHES and not equals and rest:
            moved.append(rest.pop(0))
    if not moved:
        return list(words), []
    return [*words[:at], *moved, "--", words[at], *left], moved


def _first_plain(words: Sequence[str]) -> int:
    """Where the options before the command end."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--" or not word.startswith("-") or word == "-":
            break
        flag, equals, _ = word.partition("=") if word.startswith("--") else (word, "", "")
        field = FLAGS.get(OLD_SPELLINGS.get(flag, flag))
        at += 1 if equals or field is None or field in _SWITCHES else 2
    return min(at, len(words))
