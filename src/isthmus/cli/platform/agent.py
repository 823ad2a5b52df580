"""`isthmus agent`: this machine as a site of a control plane elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.app import group
from isthmus.cli.failures import say
from isthmus.errors import Invalid

app = group("This machine as a site: join a control plane elsewhere, over an outgoing connection.")


def _default_folder() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/isthmus-agent")
    home = os.environ.get("XDG_DATA_HOME") or ""
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "share") / "isthmus-agent"


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
    if stay:
        run(data)
    else:
        option = f" --data {place.data}" if data else ""
        sys.stdout.write(f"  start it    isthmus agent run{option}\n")


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
    from isthmus.server.agent_process import run as serve
    from isthmus.server.journal import start_journal

    start_journal(log_level)
    serve(data or _default_folder())
