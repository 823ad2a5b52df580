"""The generated pages in the repository are the ones that the code makes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "docs" / "generate.py"


def test_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", PATH)
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    stale = [str(path) for path, text in generate.pages().items() if not path.exists() or path.read_text() != text]
    if stale:
        pytest.fail(f"run `make docs`: {', '.join(stale)}")
