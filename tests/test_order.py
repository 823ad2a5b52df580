"""The order of the tests, and what they may see: the table names files that exist, long ones begin first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from isthmus.client.config import find_access, local_instance
from isthmus.errors import Misconfigured

from .conftest import TOGETHER, in_order, sample, unit_of, weights

ROOT = Path(__file__).parents[1]


def test_the_table_speaks_of_what_there_is() -> None:
    units = {unit_of(str(path.relative_to(ROOT))) for path in ROOT.glob("tests/**/test_*.py")}
    assert set(weights()) - units == set()
    assert set(TOGETHER.values()) <= units


def test_what_takes_longest_begins_first(request: pytest.FixtureRequest) -> None:
    items = list(reversed(request.session.items))
    in_order(items)
    weight = weights()
    kubernetes = {unit_of(item.nodeid) for item in items if item.get_closest_marker("kubernetes")}
    order = [unit for unit in dict.fromkeys(unit_of(item.nodeid) for item in items) if unit not in kubernetes]
    assert order == sorted(order, key=lambda unit: (-weight.get(unit, 0.0), unit))


def test_the_users_own_instance_and_settings_are_not_seen() -> None:
    with pytest.raises(Misconfigured):
        find_access()
    assert not local_instance(os.environ).exists()


class Variant:
    """As much of a test as the choice looks at."""

    def __init__(self, nodeid: str, originalname: str, few: int | None = None) -> None:
        self.nodeid, self.originalname, self._few = nodeid, originalname, few

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return getattr(pytest.mark, name)(self._few).mark if self._few else None


def chosen(seed: int) -> list[str]:
    ways = [Variant(f"a.py::Test{way}::test_run[{size}]", "test_run", 2) for way in "ABC" for size in range(4)]
    others = [Variant("b.py::test_run", "test_run", 2), Variant("a.py::test_else[1]", "test_else")]
    items = cast(list[pytest.Item], [*ways, *others])
    left_out = sample(items, seed)
    assert len(left_out) == 10
    assert {item.nodeid for item in [*items, *left_out]} == {variant.nodeid for variant in [*ways, *others]}
    assert [item.nodeid for item in items[2:]] == [other.nodeid for other in others], "they have no more than is taken"
    return [item.nodeid for item in items[:2]]


def test_a_sample_follows_its_seed_and_leaves_no_test_out_wholly() -> None:
    assert chosen(7) == chosen(7)
    assert len({variant for seed in range(100) for variant in chosen(seed)}) == 12, "each variant has its turn"
