"""Files that say which Python packages a job needs: `requirements.txt` and `pyproject.toml`, as a job says it.

The file is read here, and what it means goes with the job: the environment is kept at the site for other jobs, which
have other folders.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.errors import Invalid

_MOST_BYTES = 2**20
_DEEPEST = 8
_CONDA = (".yml", ".yaml")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_INCLUDED = re.compile(r"(?:-r|--requirement)[\s=]+(.+)")
_CONSTRAINED = re.compile(r"(?:-c|--constraint)[\s=]")
_VERSION = re.compile(r"==\s*(3\.\d{1,2})(?:\.\*|\.\d+)?")


Requirements = str | os.PathLike[str] | Sequence[str] | Mapping[str, Any] | None


def read_requirements(requirements: Requirements) -> Sequence[str] | Mapping[str, Any] | None:
    """What a job needs: of the file that a path names; lines, and what was read before, as they are. Raises Invalid."""
    if isinstance(requirements, str | os.PathLike):
        return _of_file(Path(requirements).expanduser())
    return requirements


def _of_file(path: Path) -> dict[str, Any]:
    if path.suffix in _CONDA:
        raise Invalid(
            f"--requirements {path}: environments of conda are not made; list the packages in a requirements.txt, or "
            "use a container image that has them"
        )
    if path.suffix == ".toml":
        return _of_project(path)
    lines = _lines(path, 0)
    if not lines:
        raise Invalid(f"--requirements {path}: it names no packages")
    return {"requirements": lines}


def _lines(path: Path, depth: int) -> list[str]:
    """The lines that mean something, with those of the files that they include."""
    found: list[str] = []
    for line in re.sub(r"\\\r?\n", " ", _text(path)).splitlines():
        meant = " ".join(_COMMENT.sub("", line).split())
        if not meant:
            continue
        if _CONSTRAINED.match(meant):
            raise Invalid(
                f"--requirements {path}: {meant!r} names a file of constraints; write the versions themselves"
            )
        if included := _INCLUDED.fullmatch(meant):
            if depth == _DEEPEST:
                raise Invalid(f"--requirements {path}: files include each other more than {_DEEPEST} times")
            found += _lines(path.parent / included[1], depth + 1)
        else:
            found.append(meant)
    return found


def _of_project(path: Path) -> dict[str, Any]:
    try:
        said = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"--requirements {path}: it is not TOML: {error}") from None
    project = said.get("project")
    if not isinstance(project, Mapping) or not isinstance(project.get("dependencies"), list):
        raise Invalid(
            f"--requirements {path}: it has no list project.dependencies; if another tool manages them, export a "
            "requirements.txt"
        )
    lines = [" ".join(str(line).split()) for line in project["dependencies"]]
    if not lines:
        raise Invalid(f"--requirements {path}: project.dependencies names no packages")
    version = _VERSION.fullmatch(str(project.get("requires-python", "")).strip())
    return {"requirements": lines, **({"version": version[1]} if version else {})}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Invalid(f"--requirements {path}: {error.strerror or error}") from None
    if len(text) > _MOST_BYTES:
        raise Invalid(f"--requirements {path}: it is longer than {_MOST_BYTES} bytes")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Invalid(f"--requirements {path}: it is not UTF-8") from None
