"""What users import, and that both clients offer the same."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import isthmus
from isthmus import errors
from isthmus.client import AsyncClient, AsyncJobHandle, Client, JobHandle
from isthmus.client.known_kinds import PLACES
from isthmus.client.places import place_for
from isthmus.resources.kinds import KINDS

ROOT = Path(__file__).parents[2]


def test_everything_listed_is_there() -> None:
    for name in isthmus.__all__:
        assert getattr(isthmus, name) is not None
    assert dir(isthmus) == sorted(isthmus.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = isthmus.nothing


def test_everything_there_is_listed() -> None:
    tree = ast.parse(Path(isthmus.__file__).read_text())
    typed = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level
             for alias in node.names}  # fmt: skip
    assert typed == set(isthmus.__all__) - {"__version__"}
    public = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert public <= set(isthmus.__all__)


def test_version_is_the_packages() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == isthmus.__version__


def _surface(cls: type) -> dict[str, str]:
    found = {}
    for name, value in inspect.getmembers(cls):
        if name.startswith("_") or name in ("from_environment", "at"):
            continue
        if inspect.isfunction(value):
            parameters = inspect.signature(value).parameters.values()
            found[name] = ", ".join(str(p).replace("Async", "") for p in parameters)
        else:
            found[name] = "property"
    return found


@pytest.mark.parametrize(("one", "other"), [(Client, AsyncClient), (JobHandle, AsyncJobHandle)])
def test_both_clients_offer_the_same(one: type, other: type) -> None:
    assert _surface(one) == _surface(other)
    for name, value in inspect.getmembers(one, inspect.isfunction):
        if not name.startswith("_"):
            assert value.__doc__ == getattr(other, name).__doc__, name


def test_places_are_those_of_the_register() -> None:
    assert tuple(place_for(kind) for kind in KINDS.values() if kind.served) == PLACES, "run make docs"


def test_run_imports_nothing_heavy() -> None:
    """Typing `isthmus run` must not cost what it does not use."""
    code = "import isthmus.cli.jobs.running, isthmus.cli.jobs.run_words, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "typer",
        "click",
        "rich",
        "pydantic",
        "httpx",
        "asyncio",
        "yaml",
        "http.client",
        "email",
        "ssl",
        "dataclasses",
    }
    assert not heavy & set(done.stdout.split())
