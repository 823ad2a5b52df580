"""The order of the tests, and what they may see: the table names files that exist, long ones begin first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isthmus.client.config import find_access, local_instance
from isthmus.errors import Misconfigured

from .conftest import TOGETHER, pytest_collection_modifyitems, unit_of, weights

ROOT = Path(__file__).parents[1]


def test_the_table_speaks_of_what_there_is() -> None:
    units = {unit_of(str(path.relative_to(ROOT))) for path in ROOT.glob("tests/**/test_*.py")}
    assert set(weights()) - units == set()
    assert set(TOGETHER.values()) <= units


def test_what_takes_longest_begins_first(request: pytest.FixtureRequest) -> None:
    items = list(reversed(request.session.items))
    pytest_collection_modifyitems(items)
    weight = weights()
    kubernetes = {unit_of(item.nodeid) for item in items if item.get_closest_marker("kubernetes")}
    order = [unit for unit in dict.fromkeys(unit_of(item.nodeid) for item in items) if unit not in kubernetes]
    assert order == sorted(order, key=lambda unit: (-weight.get(unit, 0.0), unit))


def test_the_users_own_instance_and_settings_are_not_seen() -> None:
    with pytest.raises(Misconfigured):
        find_access()
    assert not local_instance(os.environ).exists()
