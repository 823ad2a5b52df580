"""Which files of a folder are not sent: `.gitignore` and `.isthmusignore`, in git's own way.

Every folder may have both; a rule in a deeper folder, and in `.isthmusignore`, goes over one further up. The rules
of the folders above count too, as far up as the root of the git repository, because that is what git does when one
works in a part of a repository. `.git` itself is never sent.

Caches and virtual environments are of no use elsewhere and are left out too, unless a rule says otherwise
(`!.venv/` in `.isthmusignore`).
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from isthmus.errors import Invalid

from .ignore_rules import IgnoreRules

IGNORE_FILES = (".gitignore", ".isthmusignore")
NEVER = frozenset({".git"})
CACHES = frozenset({"__pycache__", ".ipynb_checkpoints"})
MAX_PATH, MAX_DEPTH = 4096, 128
"""Characters and folders of a path that somebody names."""
MAX_CHECKS = 50_000_000
"""Rules times paths. A folder with ten thousand files and a hundred rules needs a fiftieth of it."""
ENVIRONMENT_FILE = "pyvenv.cfg"
"""What makes a folder a virtual environment."""


class Rules(NamedTuple):
    """The rules that hold in one folder: those of its own files, and those from above."""

    base: str
    """The folder's absolute path, ending in a slash."""
    specs: tuple[IgnoreRules, ...]
    above: Rules | None

    def verdict(self, path: str, folder: bool) -> bool | None:
        """Whether an absolute path below here is left out: the nearest rule that matches decides; None if none does."""
        rules: Rules | None = self
        while rules is not None:
            relative = path[len(rules.base) :]
            for spec in reversed(rules.specs):
                if (found := spec.verdict(relative, folder)) is not None:
                    return found
            rules = rules.above
        return None


def rules_above(root: str) -> Rules | None:
    """The rules that reach `root` from the folders above it, up to the root of its repository."""
    chain: list[str] = []
    folder = root
    while not os.path.lexists(os.path.join(folder, ".git")):  # noqa: PTH118 - hot: str is kept throughout
        parent = os.path.dirname(folder)  # noqa: PTH120
        if parent == folder:
            return None
        chain.append(parent)
        folder = parent
    rules: Rules | None = None
    for folder in reversed(chain):
        rules = rules_in(folder, IGNORE_FILES, rules)
    return rules


def rules_in(folder: str, present: tuple[str, ...], above: Rules | None) -> Rules | None:
    """The rules in a folder that has these files."""
    specs = [
        IgnoreRules(lines)
        for name in IGNORE_FILES
        if name in present and (lines := _lines(os.path.join(folder, name)))  # noqa: PTH118
    ]
    return Rules(folder.rstrip("/") + "/", tuple(specs), above) if specs else above


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            return file.read().splitlines()
    except (FileNotFoundError, IsADirectoryError):
        return []


def sort_out(paths: Iterable[str], texts: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The files of a folder that are sent and those that are left out, given what is in its ignore files. Pure.

    For whoever has no folder on a disk: all paths are relative to it, `texts` are the ignore files by their path.
    A folder that is left out is named once, with a slash, and nothing below it is looked at. Raises Invalid for a path
    too deep, and for more rules than can be tried on so many paths.
    """
    specs: dict[str, tuple[IgnoreRules, ...]] = {}
    for name in IGNORE_FILES:
        for path, text in texts.items():
            if posixpath.basename(path) == name:
                folder = posixpath.dirname(path)
                specs[folder] = (*specs.get(folder, ()), IgnoreRules(text.splitlines()))
    found = list(paths)
    _check_work(found, specs)
    environments = {posixpath.dirname(path) for path in found if posixpath.basename(path) == ENVIRONMENT_FILE} - {""}
    verdicts: dict[str, Rules | str | None] = {"": Rules("/", specs.get("", ()), None)}

    def rules_of(folder: str) -> Rules | str | None:
        """The rules that hold in a folder; or the folder above it that is left out."""
        if folder not in verdicts:
            above = rules_of(posixpath.dirname(folder))
            if isinstance(above, str):
                verdicts[folder] = above
            else:
                verdict = above.verdict(f"/{folder}", folder=True) if above else None
                unasked = posixpath.basename(folder) in CACHES or folder in environments
                if posixpath.basename(folder) in NEVER or verdict or (verdict is None and unasked):
                    verdicts[folder] = f"{folder}/"
                else:
                    own = specs.get(folder, ())
                    verdicts[folder] = Rules(f"/{folder}/", own, above) if own else above
        return verdicts[folder]

    sent: list[str] = []
    left_out: dict[str, None] = {}
    for path in found:
        rules = rules_of(posixpath.dirname(path))
        if isinstance(rules, str):
            left_out[rules] = None
        elif posixpath.basename(path) in NEVER or (rules and rules.verdict(f"/{path}", folder=False)):
            left_out[path] = None
        else:
            sent.append(path)
    return sent, sorted(left_out)


def _check_work(paths: list[str], specs: Mapping[str, tuple[IgnoreRules, ...]]) -> None:
    """Every rule may have to be tried on every path."""
    for path in paths:
        if len(path) > MAX_PATH or path.count("/") > MAX_DEPTH:
            raise Invalid(f"{path[:80]!r}… is longer or deeper than paths may be; choose another folder")
    rules = sum(len(spec) for found in specs.values() for spec in found)
    if rules * len(paths) > MAX_CHECKS:
        raise Invalid(
            f"{rules} rules in .gitignore files and {len(paths)} files are too many to go through; choose a part of the"
            " folder, or send it with isthmus run"
        )
