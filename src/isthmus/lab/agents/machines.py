"""One machine of a lab: a network and a name of its own, a cable, and an agent."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from isthmus.engines.agent.proving import public_of
from isthmus.engines.base import RunState
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import LocalSettings
from isthmus.errors import IsthmusError, Misconfigured
from isthmus.lab import cabling, processes

from .layout import AgentsLabPlace
from .shapes import LinkShape, netem

CPUS, MEMORY = 2, "2Gi"
"""What each machine offers."""
_END_LOOKS = 200


class LabInvitation(NamedTuple):
    """With which a machine of the lab joins."""

    url: str
    invitation: str
    authority: str


class AgentLabMachine:
    """A machine by the name of its site."""

    def __init__(self, place: AgentsLabPlace, name: str) -> None:
        self.name, self._place = name, place
        self.folder = place.node(name)
        self.data = self.folder / "agent"
        self._net, self._uts = self.folder / "net", self.folder / "uts"

    @property
    def running(self) -> bool:
        """Whether its agent lives."""
        return processes.pid_of(self._place, self.name) is not None

    @property
    def joined(self) -> str | None:
        """Which control plane it belongs to, by its address; None: to none."""
        try:
            return str(json.loads((self.data / "agent.json").read_text())["url"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def public_key(self) -> str | None:
        """By which a control plane knows it; None: it has not joined."""
        try:
            return public_of((self.data / "agent.key").read_text())
        except (OSError, ValueError):
            return None

    @property
    def address(self) -> str:
        """Of the machine, in the lab's network."""
        return self._place.address(cabling.host_of(self._place, self.folder))

    @property
    def cable(self) -> str:
        """This end of it."""
        return self._place.link(cabling.host_of(self._place, self.folder))

    def plug_in(self) -> None:
        """Its network and its cable, unless they are there."""
        if os.path.ismount(self._net) and Path(f"/sys/class/net/{self.cable}").exists():
            return
        host = cabling.host_of(self._place, self.folder)
        cabling.remove_machine(self._place, host, self._net, self._uts)
        cabling.make_machine(self._place, self.name, host, self._net, self._uts)

    @property
    def inside(self) -> list[str]:
        """The words that run what follows on this machine."""
        return ["nsenter", f"--net={self._net}", f"--uts={self._uts}"]

    def join(self, invited: LabInvitation) -> None:
        """Make it a site, as its owner would. Raises Misconfigured."""
        self.stop()
        self.data.mkdir(parents=True, exist_ok=True)
        rules = self.data / "agent.toml"
        if not rules.exists():
            rules.write_text(f'cpus = {CPUS}\nmemory = "{MEMORY}"\n')
        words = [*_isthmus(), "agent", "join", invited.url, "--authority", invited.authority]
        words += ["--proxy", self._place.proxy, "--data", str(self.data)]
        processes.call(self._place, *self.inside, *words, more={"ISTHMUS_INVITATION": invited.invitation})

    def start(self) -> None:
        """Start its agent, unless it runs."""
        if not self.running:
            words = [*self.inside, *_isthmus(), "agent", "run", "--data", str(self.data)]
            processes.spawn(self._place, self.name, words)

    def stop(self) -> None:
        """Stop its agent. Jobs go on."""
        processes.stop(self._place, self.name)

    def set_link(self, shape: LinkShape | None) -> str:
        """Make its link like this; None: cut. Says what does it."""
        call, file = processes.call, self._place.shape(self.address)
        ends = (("tc", "qdisc"), ("nsenter", f"--net={self._net}", "tc", "qdisc"))
        for words, device in zip(ends, (self.cable, "eth0"), strict=True):
            call(self._place, *words, "delete", "dev", device, "root", check=False)
        file.unlink(missing_ok=True)
        if shape is None:
            call(self._place, "ip", "link", "set", self.cable, "down")
            return "the cable"
        call(self._place, "ip", "link", "set", self.cable, "up")
        if shape.whole:
            return "the cable"
        if shutil.which("tc", path=processes.PATH) and all(
            call(self._place, *words, "add", "dev", device, "root", *netem(shape), check=False).returncode == 0
            for words, device in zip(ends, (self.cable, "eth0"), strict=True)
        ):
            return "the kernel (netem)"
        call(self._place, "tc", "qdisc", "delete", "dev", self.cable, "root", check=False)
        file.parent.mkdir(exist_ok=True)
        file.write_text(shape.to_json())
        return "the lab's proxy, because the kernel has no netem"

    @property
    def link_state(self) -> str:
        """In a word."""
        with_carrier = processes.call(self._place, "ip", "-o", "link", "show", self.cable, check=False).stdout
        return "up" if "UP" in with_carrier.partition(">")[0] else "down"

    def clean(self) -> None:
        """End everything on it, as if it were switched off, and remove its network."""
        self.stop()
        if (self.data / "site").exists():
            asyncio.run(_end_runs(self))
        processes.kill_all(lambda: processes.in_namespace(self._net))
        if (self.folder / "host").exists():
            self._place.shape(self.address).unlink(missing_ok=True)
            cabling.remove_machine(self._place, cabling.host_of(self._place, self.folder), self._net, self._uts)


async def _end_runs(machine: AgentLabMachine) -> None:
    engine = LocalEngine(LocalSettings(root=machine.data / "site"))
    try:
        await engine.open()
    except IsthmusError as error:
        raise Misconfigured(f"What runs on {machine.name} cannot be ended: {error.message}") from None
    try:
        for run_id in [folder.name for folder in (machine.data / "site" / "runs").glob("*")]:
            await engine.cancel(run_id, grace=0)
            for _ in range(_END_LOOKS):
                seen = await engine.observe(run_id)
                if seen is None or seen.state is RunState.ENDED:
                    break
                await asyncio.sleep(0.05)
    finally:
        await engine.close()
        await engine.stop_keeper()


def _isthmus() -> list[str]:
    return [sys.executable, "-m", "isthmus.cli"]
