"""The commands of the Kubernetes pages work. Apart from others: they wait for programs that a new machine builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_tutorials import KUBERNETES, NODES, check_page, try_page

pytestmark = [pytest.mark.real, pytest.mark.kubernetes, pytest.mark.timeout(450)]


def test_kubernetes_page(tmp_path: Path) -> None:
    check_page(KUBERNETES, try_page(KUBERNETES, tmp_path, patience=400))


def test_nodes_page(tmp_path: Path) -> None:
    check_page(NODES, try_page(NODES, tmp_path, patience=400))
