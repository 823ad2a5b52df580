"""The commands of the Kubernetes pages work. Apart from others: they wait for programs that a new machine builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_tutorials import KUBERNETES, NODES, check_page, try_page


@pytest.mark.real
@pytest.mark.kubernetes
@pytest.mark.timeout(450)
@pytest.mark.parametrize("page", [KUBERNETES, NODES], ids=lambda page: page.stem)
def test_kubernetes_page(page: Path, tmp_path: Path) -> None:
    check_page(page, try_page(page, tmp_path, patience=400))
