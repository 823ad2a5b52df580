"""Links that lead out of a folder through each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus._kit.links import escaping

NAMES = st.sampled_from(["a", "b", "c", "d/a", "d/b", "d/e/a"])
TARGETS = st.lists(st.sampled_from(["a", "b", "c", "d", "e", ".", ".."]), min_size=1, max_size=5).map("/".join)


@pytest.mark.parametrize(
    ("links", "out"),
    [
        ({"a": ".", "b": "a/.."}, {"b"}),
        ({"a": "..", "b": "a"}, {"a", "b"}),
        ({"d/a": "..", "b": "d/a/.."}, {"b"}),
        ({"a": "/etc"}, {"a"}),
        ({"a": "b", "b": "a"}, set()),
        ({"a": "a/../.."}, {"a"}),
        ({"runs/last": "1", "best": "runs/last"}, set()),
    ],
)
def test_known_cases(links: dict[str, str], out: set[str]) -> None:
    assert escaping(links) == out


@given(links=st.dictionaries(NAMES, TARGETS, max_size=6))
def test_no_link_that_is_let_through_leads_out_on_a_real_disk(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str]
) -> None:
    root = tmp_path_factory.mktemp("links") / "root"
    (root / "d" / "e").mkdir(parents=True)
    kept = {path: to for path, to in links.items() if path not in escaping(links)}
    for path, to in kept.items():
        os.symlink(to, root / path)
    for path in kept:
        assert Path(os.path.realpath(root / path)).is_relative_to(root)


def test_the_work_is_bounded() -> None:
    hostile = {f"l{n}": "./" * 2_000 + "x" for n in range(5_000)}
    assert len(escaping(hostile)) > 1_000, "what was not looked at counts as leading out"
