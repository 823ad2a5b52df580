"""The commands of the Kubernetes page work. In a file of its own: it waits for programs that a new machine builds."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_tutorials import KUBERNETES, check_page, try_page


@pytest.mark.real
@pytest.mark.kubernetes
@pytest.mark.timeout(450)
def test_kubernetes_page(tmp_path: Path) -> None:
    check_page(KUBERNETES, try_page(KUBERNETES, tmp_path, patience=400))
