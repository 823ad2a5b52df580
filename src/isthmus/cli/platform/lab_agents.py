"""The machines with agents of `isthmus lab`: started, and joined to the server that is known."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.cli.failures import say
from isthmus.cli.options import client_for
from isthmus.errors import Misconfigured, NotFound, Unavailable

from .agents import new_invitation

if TYPE_CHECKING:
    from isthmus.client.sync import Client
    from isthmus.lab.agents.fleet import AgentsLab
    from isthmus.lab.agents.machines import AgentLabMachine, LabInvitation

_LABELS = {"isthmus.dev/lab": "true"}
_JOIN_SECONDS = 600.0
_READY_SECONDS = 60.0


def agents_in(data: Path) -> AgentsLab:
    """The machines of the lab in a folder, set up or not."""
    from isthmus.lab.agents.fleet import AgentsLab

    return AgentsLab(data / "agents")


def up_agents(count: int, data: Path, data_option: str, url: str | None, token: str | None) -> None:
    """Start machines, have each join, and say what to type next."""
    lab = agents_in(data)
    begin = time.monotonic()
    try:
        client = client_for(url, token)
    except Misconfigured as error:
        raise Misconfigured(f"agents join a control plane, and none is known: {error.message}") from None
    with client:
        try:
            client.authority()
        except Unavailable as error:
            raise Misconfigured(f"agents join a control plane; start one with `isthmus up`: {error.message}") from None
        where = client.url.replace("http://", "https://")
        lab.up(count, where, lambda machine: _invited(client, machine, where))
        names = [lab.place.node_name(index) for index in range(1, count + 1)]
        _wait(client, names)
    say(f"{count} agents are up after {time.monotonic() - begin:.1f} s: {_span(names)}")
    sys.stdout.write(
        f"  look        isthmus agents\n"
        f"  try         isthmus run --no-files --site {names[0]} -- hostname\n"
        f"  cut a link  isthmus lab link {names[0]} down{data_option}\n"
        f"  stop        isthmus lab down{data_option}\n"
    )


def _invited(client: Client, machine: AgentLabMachine, where: str) -> LabInvitation | None:
    """An invitation for a machine that is not yet this site of this control plane."""
    from isthmus.lab.agents.machines import LabInvitation

    if machine.joined == where and _is_its_own(client, machine):
        return None
    said = new_invitation(client, machine.name, _JOIN_SECONDS, where, _LABELS)
    return LabInvitation(said["url"], said["invitation"], said["authority"])


def _is_its_own(client: Client, machine: AgentLabMachine) -> bool:
    """Whether the site of the machine's name has the machine's key."""
    try:
        agent = client.get("sites", machine.name)["spec"].get("agent") or {}
    except NotFound:
        return False
    return bool(agent.get("key")) and agent["key"] == machine.public_key and not agent.get("revoked")


def _wait(client: Client, names: list[str]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    waiting = list(names)
    while waiting and time.monotonic() < deadline:
        phases = {one["metadata"]["name"]: (one.get("status") or {}).get("phase") for one in client.list("sites")}
        waiting = [name for name in waiting if phases.get(name) != "Ready"]
        if waiting:
            time.sleep(0.2)
    if waiting:
        say(f"not ready yet: {', '.join(waiting)}; `isthmus agents` says more")


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def link_agent(data: Path, name: str, state: str, latency: str | None, rate: str | None, loss: float | None) -> None:
    """Make the link of a machine like this."""
    from isthmus.lab.agents.shapes import wanted

    shape = wanted(state, latency, rate, loss)
    by = agents_in(data).link(name, shape)
    sys.stdout.write(f"{name} {state}\n")
    if shape is not None and not shape.whole:
        say(f"shaped by {by}")


def remove_agents(client: Client, data: Path, remove: Callable[[Any, str], None]) -> None:
    """Remove the sites that are machines of this lab."""
    for machine in agents_in(data).machines():
        if _is_its_own(client, machine):
            remove(client, machine.name)
