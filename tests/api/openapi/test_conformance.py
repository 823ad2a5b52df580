"""schemathesis against the running server: what it documents is what it does, for good requests and bad ones.

Bounded and repeatable: few examples per operation, always the same, and in an ordinary run half of the operations,
by chance. Whether a value that the schema allows is also
accepted is not asked, because models check more than a schema can say (a script or a command, times, expressions).
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest
from schemathesis import GenerationMode

from isthmus.testing.apis import RunningApi

from .conforming import conforms, operations

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

# Deletions last: they also delete the tenants.
METHODS = [("get", "head"), ("post",), ("put",), ("patch",), ("delete",)]


@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
@pytest.mark.parametrize("methods", METHODS, ids="-".join)
async def test_the_server_does_what_it_documents(
    api: RunningApi, methods: tuple[str, ...], pytestconfig: pytest.Config
) -> None:
    found = operations(*methods)
    assert found
    if not pytestconfig.getoption("--all-variants"):
        found = random.Random(os.environ["ISTHMUS_TEST_SEED"]).sample(found, (len(found) + 1) // 2)
    total = 0
    for operation in found:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            total += await asyncio.to_thread(conforms, api, operation, mode, {})
    assert total >= 3 * len(found)
