"""`isthmus agent`: this machine as a site of a control plane elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.app import group
from isthmus.cli.failures import say
from isthmus.errors import Invalid, NotFound

if TYPE_CHECKING:
    from isthmus.agent.places import AgentPlace
    from isthmus.agent.services import AgentService

app = group("This machine as a site: join a control plane elsewhere, over an outgoing connection.")


def _default_folder() -> Path:
    from isthmus.agent.installer import default_folder

    return Path(default_folder())


Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Folder of everything that the agent keeps.",
        show_default="/var/lib/isthmus-agent as root, else ~/.local/share/isthmus-agent",
    ),
]


@app.command("join")
def join(
    url: Annotated[str, typer.Argument(metavar="URL", help="The control plane's address, https://…")],
    invitation: Annotated[
        str | None,
        typer.Argument(metavar="[INVITATION]", help="What `isthmus agents invite` printed; or ISTHMUS_INVITATION."),
    ] = None,
    authority: Annotated[
        str, typer.Option("--authority", metavar="SHA256", help="Who vouches for the control plane.")
    ] = "",
    proxy: Annotated[
        str | None,
        typer.Option("--proxy", metavar="URL", help="HTTP proxy on the way; the environment's, unless given."),
    ] = None,
    data: Data = None,
    stay: Annotated[bool, typer.Option("--run", help="Then be the agent, until it is stopped.")] = False,
    service: Annotated[
        bool, typer.Option("--service", help="Then have the machine run the agent, also after a restart.")
    ] = False,
) -> None:
    """Make this machine a site. Its key is made here, and never leaves it.

    \b
    Example:
      isthmus agent join https://isthmus.example.org:7070 isi_jetson-3_… --authority 5f70…
    """
    from isthmus.agent.joining import join as enrol
    from isthmus.agent.joining import proxy_for
    from isthmus.agent.places import AgentPlace

    place = AgentPlace(data or _default_folder())
    said = invitation or os.environ.get("ISTHMUS_INVITATION") or ""
    if not said.startswith("isi_"):
        raise Invalid("that is no invitation; copy the whole line that `isthmus agents invite` printed")
    if not url.startswith("https://"):
        raise Invalid(f"{url!r:.80} must begin with https://; copy the whole line that `isthmus agents invite` printed")
    if not authority:
        raise Invalid("say with --authority who vouches for the control plane; the invitation came with it")
    membership = asyncio.run(enrol(place, url, said, authority, proxy_for(url) if proxy is None else proxy))
    say(f"this machine is site {membership.site} of {membership.url}; its key is in {place.data}")
    if service:
        from isthmus.agent.versions import AgentVersions

        launcher = AgentVersions(place.data).write_launcher()
        say(_service(place).start())
        say(f"take it away with: /bin/sh {launcher} leave")
    elif stay:
        run(data)
    else:
        option = f" --data {place.data}" if data else ""
        sys.stdout.write(f"  start it    isthmus agent run{option}\n")


@app.command("leave")
def leave(
    data: Data = None,
    force: Annotated[bool, typer.Option("--force", help="Even if jobs run; they are ended.")] = False,
) -> None:
    """Take the agent away from this machine: its service and its folder. The site stays until `isthmus agents remove`.

    \b
    Example:
      isthmus agent leave
    """
    from isthmus.agent.places import AgentPlace
    from isthmus.server.agent_process import take_away

    place = AgentPlace(data or _default_folder())
    if not place.joined:
        raise NotFound(f"there is no agent in {place.data}")
    take_away(place, force=force, stop=_service(place).stop)
    say(f"the agent is gone from this machine, and {place.data} with it")


def _service(place: AgentPlace) -> AgentService:
    from isthmus.agent.services import AgentService

    return AgentService(place, place.data / "agent.sh", _default_folder())


@app.command("run")
def run(
    data: Data = None,
    log_level: Annotated[str, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Be the agent of this machine, until it is stopped. Jobs go on when it stops, and are found again when it is back.

    \b
    Example:
      isthmus agent run
    """
    words = ["-m", "isthmus.server.agent_process", str(data or _default_folder()), log_level]
    os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - itself, without what the command line took
