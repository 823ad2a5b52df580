"""All machines of a lab of agents. `up` is idempotent: it starts what does not run and leaves the rest alone."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from isthmus.errors import Invalid, Misconfigured, NotFound
from isthmus.lab import cabling, numbers, processes
from isthmus.lab.layout import LabStatus

from .layout import AgentsLabPlace
from .machines import AgentLabMachine, LabInvitation
from .shapes import LinkShape

_LOCK = "isthmus-agents-lab"
_PROXY = "proxy"
_MOST = 200


class AgentsLab:
    """Machines with agents, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.place = AgentsLabPlace.of(folder)

    def up(self, count: int, url: str, invite: Callable[[AgentLabMachine], LabInvitation | None]) -> None:
        """Have machines 1 to `count`, joined to the control plane at an address.

        `invite` is asked for every machine, and answers with None when it belongs there already.
        """
        if not 1 <= count <= _MOST:
            raise Invalid(f"a lab has from 1 to {_MOST} agents")
        if not self.place.exists:
            self._set_up()
        with numbers.machine_lock(_LOCK):
            numbers.hold(self.place)
            if not numbers.has_link(self.place):
                cabling.make_bridge(self.place)
        where = urlsplit(url)
        self.place.target.write_text(f"{where.netloc if where.port else f'{where.hostname}:443'}\n")
        self._start_proxy()
        for index in range(1, count + 1):
            machine = self.machine(self.place.node_name(index))
            machine.plug_in()
            invited = invite(machine)
            if invited is not None:
                machine.join(invited)
            machine.start()

    def machine(self, name: str) -> AgentLabMachine:
        """A machine by its name."""
        return AgentLabMachine(self.place, name)

    def machines(self) -> list[AgentLabMachine]:
        """All that there are."""
        found = sorted(self.place.root.glob("nodes/*"), key=lambda one: (len(one.name), one.name))
        return [self.machine(folder.name) for folder in found]

    def link(self, name: str, shape: LinkShape | None) -> str:
        """Make the link of a machine like this; None: cut. Says what does it; raises NotFound."""
        known = {machine.name: machine for machine in self.machines()}
        if name not in known:
            there = f"it has {', '.join(known)}" if known else "start one with: isthmus lab up --agents 2"
            raise NotFound(f"the lab in {self.place.root.parent} has no machine {name!r}; {there}")
        return known[name].set_link(shape)

    def _set_up(self) -> None:
        root = self.place.root
        for name in ("log", "run", "nodes", "links"):
            (root / name).mkdir(parents=True, exist_ok=True)
            (root / name).chmod(0o711)
        root.chmod(0o711)
        with numbers.machine_lock(_LOCK):
            number = numbers.free_number(root, lambda number: AgentsLabPlace(root, number))
            self.place = replace(self.place, number=number)
            cabling.make_bridge(self.place)
            (root / "number").write_text(str(number))

    def _start_proxy(self) -> None:
        place = self.place
        if processes.pid_of(place, _PROXY) is None:
            processes.spawn(place, _PROXY, [sys.executable, "-m", "isthmus.lab.agents.link_proxy", str(place.root)])

        def answers() -> bool:
            try:
                socket.create_connection((place.address(1), place.port(0)), 5).close()
            except OSError:
                return False
            return True

        if not processes.wait(answers, 30):
            raise Misconfigured(f"The lab's proxy does not answer; see {place.log(_PROXY)}.")

    def down(self, *, erase: bool = False) -> None:
        """Stop everything and leave no link, mount or process; with `erase` no file either."""
        place = self.place
        if not place.exists:
            return
        for machine in self.machines():
            machine.clean()
        processes.stop(place, _PROXY)
        processes.kill_all(lambda: processes.all_of(place))
        if numbers.has_link(place):
            processes.call(place, "ip", "link", "delete", place.bridge)
        if erase:
            shutil.rmtree(place.root)
            with numbers.machine_lock(_LOCK):
                numbers.let_go(place)
            self.place = AgentsLabPlace(place.root)

    def status(self) -> LabStatus:
        """What runs."""
        if not self.place.exists:
            return LabStatus(self.place.root, False, {}, {})
        names = [_PROXY, *(machine.name for machine in self.machines())]
        found = {name: pid for name in names if (pid := processes.pid_of(self.place, name))}
        states = {machine.name: f"link {machine.link_state}" for machine in self.machines() if machine.running}
        return LabStatus(self.place.root, _PROXY in found, found, states)
