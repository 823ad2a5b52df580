"""Whatever one tenant sends, the others are answered: somebody asks a real server for its health all the while."""

from __future__ import annotations

import httpx
import pytest

from .conftest import Prober
from .inputs import INPUTS, JOBS, Input, job

pytestmark = pytest.mark.real

LONGEST_ANSWER = 256 * 1024


@pytest.fixture(scope="module")
def patched(member: httpx.Client) -> None:
    """The job that patches are for. It never starts."""
    assert member.post(JOBS, json=job("patched", intent="Hold")).status_code == 201


@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("hostile", INPUTS, ids=lambda hostile: hostile.name.replace(" ", "-"))
def test_health_is_answered_while_it_is_processed(prober: Prober, member: httpx.Client, hostile: Input) -> None:
    wanted = hostile.request()
    headers = {"Content-Type": wanted.content_type, **wanted.headers}
    with (
        prober.always_healthy(),
        member.stream(wanted.method, wanted.path, content=wanted.body, headers=headers) as answer,
    ):
        assert answer.status_code in hostile.codes, answer.read()[:500]
        if answer.headers["content-type"].startswith("text/event-stream"):
            return
        assert len(answer.read()) < LONGEST_ANSWER or answer.status_code == 200
    assert member.get(f"{JOBS}/hostile").status_code == 404
