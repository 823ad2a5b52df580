"""A module that calls itself pure is held to it, and every one that is held to it says so.

import-linter forbids I/O, the store and `time` to the modules in its contract; which those are is compared here with
what docstrings say. What an import alone does not tell, a look at the clock of `datetime`, is looked for here.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
CLAIM = re.compile(r"\bPure\b")
CLOCKS = {f"{kind}.{name}" for kind in ("datetime", "date") for name in ("now", "utcnow", "today")}
CONTRACTS = [
    contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    if "are pure" in contract["name"]
]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


@cache
def claiming() -> dict[str, Path]:
    """Modules and packages whose docstrings say that they are pure."""
    found = {name_of(path): path for path in SOURCES.rglob("*.py") if CLAIM.search(docstring(path))}
    packages = [name for name, path in found.items() if path.name == "__init__.py"]
    return {name: path for name, path in found.items() if not any(name.startswith(f"{p}.") for p in packages)}


def docstring(path: Path) -> str:
    text = path.read_text()
    return (ast.get_docstring(ast.parse(text)) or "") if CLAIM.search(text) else ""


def modules(path: Path) -> list[Path]:
    return sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]


def looks_at_the_clock(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and any(name.name == "utcnow" for name in node.names):
            yield f"imports utcnow in line {node.lineno}"
        if isinstance(node, ast.Attribute) and ast.unparse(node) in CLOCKS:
            yield f"{ast.unparse(node)} in line {node.lineno}"


def test_those_that_say_so_are_held_to_it_and_no_others() -> None:
    held = [name for contract in CONTRACTS for name in contract["source_modules"]]
    assert sorted(held) == sorted(claiming()), "the docstrings and the contracts in pyproject.toml differ"
    assert len(held) > 50


def test_the_contracts_forbid_the_store_and_the_clock() -> None:
    general, inside = CONTRACTS
    assert {"isthmus.store", "time", "asyncio", "socket", "sqlite3"} <= set(general["forbidden_modules"])
    assert set(general["forbidden_modules"]) - set(inside["forbidden_modules"]) == {"isthmus.store"}


@pytest.mark.parametrize("name", sorted(claiming()))
def test_it_does_not_look_at_the_clock(name: str) -> None:
    for path in modules(claiming()[name]):
        assert list(looks_at_the_clock(path)) == [], path
