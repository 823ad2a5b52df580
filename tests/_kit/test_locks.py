"""Locks by key: one at a time, also when some come while others wait and leave."""

from __future__ import annotations

import asyncio

import pytest

from isthmus._kit.locks import KeyedLocks

pytestmark = pytest.mark.anyio


async def test_one_who_comes_late_waits_for_those_who_wait_already() -> None:
    """A lock that is dropped when its holder leaves while another waits lets a third in beside the second."""
    locks, inside, most = KeyedLocks(), 0, 0

    async def enter() -> None:
        nonlocal inside, most
        async with locks.hold("run"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            inside -= 1

    waiting = []
    for _ in range(20):
        waiting.append(asyncio.create_task(enter()))
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert most == 1
    assert len(locks) == 0


async def test_keys_do_not_wait_for_each_other_and_nothing_is_left_behind() -> None:
    locks = KeyedLocks()
    async with locks.hold("a"):
        async with asyncio.timeout(10), locks.hold("b"):
            assert "a" in locks
            assert "b" in locks
        waiting = asyncio.create_task(_hold(locks, "a"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert "a" in locks
    assert len(locks) == 0


async def _hold(locks: KeyedLocks, key: str) -> None:
    async with locks.hold(key):
        pass
