"""Plain words: what the glossary gave another name does not come back, in code, in messages or in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = [
    *(ROOT / "src" / "isthmus").rglob("*.py"),
    *(path for path in (ROOT / "docs").rglob("*.md") if path.name != "glossary.md"),
    *ROOT.glob("*.md"),
]
INSTEAD = {
    r"books": "accounting",
    r"pictures?": "snapshot, view, image or screenshot",
    r"deeds?": "effect, action",
    r"told|teller|tellings?": "reported, notified, asked, given, distinguished",
    r"so often": "how many times",
    r"(gone|over) already is as good": "it is no error if …",
    r"(as|is) (a|the) home": "store",
    r"(each|every|next|failed|earlier|another) tr(y|ies)(?= (is|was|of|that|left|kept|did|and))": "attempt",
    r"present folder": "current folder",
}


@pytest.mark.parametrize("pattern", INSTEAD)
def test_words_that_have_a_plainer_one_do_not_come_back(pattern: str) -> None:
    found = []
    for path in TEXTS:
        name = str(path.relative_to(ROOT))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for match in re.finditer(rf"(?<![\w-])_?({pattern})(?![\w-])", line, re.IGNORECASE):
                found.append(f"{name}:{number}: {match[0]!r} in {line.strip()[:100]}")
    assert found == [], f"write {INSTEAD[pattern]}; docs/glossary.md has the words"
