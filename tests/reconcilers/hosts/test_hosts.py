"""Machines' power: asked for once, asked again when nothing happens, cut only where that is allowed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from isthmus.errors import HostUnavailable
from isthmus.hosts.base import HostSeen
from isthmus.resources.frame.states import HostPhase
from isthmus.resources.hosts import Host, HostInventory, HostPower, Reset
from isthmus.resources.kinds import HOST
from isthmus.store.base import Key
from isthmus.testing.planes import Plane, with_plane

KEY = Key(HOST.name, "", "node-1")
REDFISH = {"url": "https://bmc.example.org", "credentialsFile": "/etc/isthmus/bmc"}


@dataclass
class FakeBmc:
    """A machine that obeys, unless it is deaf."""

    power: HostPower = HostPower.OFF
    deaf: set[Reset] = field(default_factory=set)
    asked: list[Reset] = field(default_factory=list)
    away: bool = False
    closed: int = 0

    async def look(self) -> HostSeen:
        if self.away:
            raise HostUnavailable("The BMC did not answer within 20 s.")
        return HostSeen(self.power, "OK", HostInventory(model="3500RX", cores=64))

    async def reset(self, reset: Reset) -> None:
        self.asked.append(reset)
        if reset not in self.deaf:
            self.power = HostPower.ON if reset is Reset.ON else HostPower.OFF

    async def close(self) -> None:
        self.closed += 1


async def begun(it: Plane, bmc: FakeBmc, **spec: object) -> None:
    it.make_host = lambda _: bmc
    await it.create(HOST, "node-1", {"redfish": REDFISH, "probeInterval": "10s", **spec})
    it.start()


async def host(it: Plane) -> Host:
    return Host.model_validate((await it.real.get(KEY)).obj)


async def until(it: Plane, phase: HostPhase, power: HostPower | None = None) -> Host:
    async def reached() -> Host | None:
        found = await host(it)
        return found if found.status.phase is phase and power in (None, found.status.power) else None

    return await it.until(reached)


@with_plane()
async def test_a_machine_is_switched_on_once(it: Plane) -> None:
    bmc = FakeBmc()
    await begun(it, bmc, power="On")
    seen = await until(it, HostPhase.READY, HostPower.ON)
    assert bmc.asked == [Reset.ON]
    assert (seen.status.inventory or HostInventory()).cores == 64
    assert seen.status.requested is None


@with_plane()
async def test_nothing_is_asked_of_a_machine_that_is_left_as_it_is_or_maintained(it: Plane) -> None:
    bmc = FakeBmc(HostPower.ON)
    await begun(it, bmc)
    await until(it, HostPhase.READY, HostPower.ON)
    await it.change_object(HOST, KEY, maintenance=True, power="Off")
    await until(it, HostPhase.MAINTENANCE)
    await asyncio.sleep(300)
    assert bmc.asked == []


@with_plane()
async def test_a_bmc_that_says_yes_and_does_nothing_is_asked_again_after_a_while(it: Plane) -> None:
    bmc = FakeBmc(deaf={Reset.ON})
    await begun(it, bmc, power="On")
    await asyncio.sleep(100)
    assert bmc.asked == [Reset.ON]
    assert "was asked for On" in ((await host(it)).status.message or "")
    await asyncio.sleep(60)
    assert bmc.asked == [Reset.ON, Reset.ON]


@with_plane()
async def test_the_power_is_never_cut_unasked(it: Plane) -> None:
    bmc = FakeBmc(HostPower.ON, deaf={Reset.GRACEFUL_SHUTDOWN})
    await begun(it, bmc, power="Off")
    await asyncio.sleep(900)
    assert set(bmc.asked) == {Reset.GRACEFUL_SHUTDOWN}
    assert "set spec.forceAfter" in ((await host(it)).status.message or "")
    await it.change_object(HOST, KEY, forceAfter="5m")
    await until(it, HostPhase.READY, HostPower.OFF)
    assert bmc.asked[-1] is Reset.FORCE_OFF


@with_plane()
async def test_a_system_has_its_time_to_shut_down_before_the_power_is_cut(it: Plane) -> None:
    bmc = FakeBmc(HostPower.ON, deaf={Reset.GRACEFUL_SHUTDOWN})
    await begun(it, bmc, power="Off", forceAfter="5m")
    await asyncio.sleep(280)
    assert Reset.FORCE_OFF not in bmc.asked
    await until(it, HostPhase.READY, HostPower.OFF)


@with_plane()
async def test_a_bmc_that_does_not_answer_means_nothing_about_the_machine(it: Plane) -> None:
    bmc = FakeBmc(HostPower.ON)
    await begun(it, bmc)
    await until(it, HostPhase.READY)
    bmc.away = True
    seen = await until(it, HostPhase.UNREACHABLE)
    assert seen.status.power is HostPower.ON, "what was known stays known"
    assert seen.status.message == "The BMC did not answer within 20 s."
    bmc.away = False
    await until(it, HostPhase.READY)


@with_plane()
async def test_a_power_state_that_nobody_knows_is_not_off(it: Plane) -> None:
    bmc = FakeBmc(HostPower.UNKNOWN)
    await begun(it, bmc, power="On")
    await until(it, HostPhase.CHANGING)
    await asyncio.sleep(300)
    assert bmc.asked == []


@with_plane()
async def test_a_control_plane_that_is_killed_and_started_again_does_not_ask_twice(it: Plane) -> None:
    bmc = FakeBmc(deaf={Reset.ON})
    await begun(it, bmc, power="On")
    await asyncio.sleep(5)
    await it.stop()
    it.start()
    await asyncio.sleep(60)
    assert bmc.asked == [Reset.ON], "the request was written down before it was sent"


@with_plane()
async def test_a_change_by_somebody_else_during_a_look_is_not_the_bmcs_fault(it: Plane) -> None:
    bmc = FakeBmc(HostPower.ON)
    look, changed = bmc.look, []

    async def disturbed() -> HostSeen:
        if not changed:
            changed.append(True)
            await it.change_object(HOST, KEY, description="rack b3")
            await asyncio.sleep(1)  # a BMC takes its time
        return await look()

    bmc.look = disturbed  # type: ignore[method-assign]
    await begun(it, bmc)
    await until(it, HostPhase.READY)
    assert changed
    assert bmc.closed == 0, "nothing was wrong with it"


@with_plane()
async def test_connections_go_with_the_object(it: Plane) -> None:
    bmc = FakeBmc()
    await begun(it, bmc)
    await until(it, HostPhase.READY)
    await it.real.delete(KEY)
    await asyncio.sleep(5)
    assert bmc.closed == 1
