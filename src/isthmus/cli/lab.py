"""`isthmus lab`: real clusters on this machine, to try things out on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.errors import Invalid, Misconfigured, Unavailable

from .app import group
from .failures import say
from .options import Format, Output, Token, Url, client_for, format_of
from .tables import write

if TYPE_CHECKING:
    from isthmus.lab.slurm.cluster import SlurmLab

app = group("A real Slurm cluster on this machine, for trying things out. Needs root.")

DEFAULT_FOLDER = Path("/var/lib/isthmus-lab")
Data = Annotated[
    Path, typer.Option("--data", help="Folder of everything the lab keeps.", show_default=str(DEFAULT_FOLDER))
]


@app.command("up")
def up(
    slurm: Annotated[int | None, typer.Option(min=1, max=200, metavar="N", help="A Slurm cluster of N nodes.")] = None,
    accounting: Annotated[bool, typer.Option("--accounting", help="With slurmdbd on MariaDB.")] = False,
    energy: Annotated[bool, typer.Option("--energy", help="With an energy counter on every node.")] = False,
    name: Annotated[str, typer.Option(help="Name of the site that it becomes.")] = "lab",
    data: Data = DEFAULT_FOLDER,
    url: Url = None,
    token: Token = None,
) -> None:
    """Start a cluster, or what is missing of it. The first node has a board (akida), the second a GPU.

    Where a server is known (`isthmus up` on this machine, or a login), the cluster becomes one of its sites.

    \b
    Examples:
      isthmus lab up --slurm 4
      isthmus lab up --slurm 8 --accounting --energy --data ./lab
    """
    if slurm is None:
        raise Invalid("say what to start, such as --slurm 4 for a Slurm cluster of four nodes")
    from isthmus.lab.slurm.layout import LabSettings

    lab = _lab(data)
    wanted = LabSettings(accounting=accounting, energy=energy) if accounting or energy or not lab.place.exists else None
    begin = time.monotonic()
    lab.up(slurm, wanted)
    say(f"Slurm is up with {len(lab.status().nodes)} nodes after {time.monotonic() - begin:.1f} s")
    known = _register(lab, name, url, token)
    sys.stdout.write(
        f"  use it      export SLURM_CONF={lab.place.conf}; sinfo\n"
        f"  slurmrestd  {lab.place.rest_url}\n"
        + (f"  try         isthmus run --site {name} --device akida -- hostname\n" if known else "")
        + f"  stop        isthmus lab down{_data_option(data)}\n"
    )


@app.command("down")
def down(
    erase: Annotated[bool, typer.Option("--erase", help="Remove its files too, with all its jobs.")] = False,
    data: Data = DEFAULT_FOLDER,
) -> None:
    """Stop everything of the lab. Its files stay, unless erased, and the next `up` goes on with them.

    \b
    Example:
      isthmus lab down --erase
    """
    lab = _lab(data)
    if not lab.place.exists:
        say(f"there is no lab in {data}")
        return
    lab.down(erase=erase)
    say("stopped; nothing of it runs any more" if not erase else "stopped and removed")


@app.command("status")
def status(data: Data = DEFAULT_FOLDER, output: Output = None) -> None:
    """What runs of the lab, and how its nodes are.

    \b
    Example:
      isthmus lab status
    """
    found = _lab(data).status()
    told = {
        "folder": str(found.folder),
        "running": found.running,
        "daemons": found.daemons,
        "nodes": found.nodes,
    }
    if (form := format_of(output)) in (Format.JSON, Format.YAML):
        write(told, form)
        return
    if not found.running:
        sys.stdout.write(f"no Slurm runs from {found.folder}\n")
        return
    daemons = ", ".join(f"{name} ({pid})" for name, pid in found.daemons.items())
    sys.stdout.write(f"daemons  {daemons}\n")
    for name, state in found.nodes.items():
        sys.stdout.write(f"node     {name}  {state}\n")


def _register(lab: SlurmLab, name: str, url: str | None, token: str | None) -> bool:
    """Make the lab a site of the server that is known; whether it is one."""
    from isthmus.lab.slurm.registering import manifests

    try:
        with client_for(url, token) as client:
            for obj in manifests(lab.place, name):
                client.apply(obj)
    except (Misconfigured, Unavailable) as error:
        say(f"not registered as a site: {error.message}")
        return False
    say(f"registered as site {name}")
    return True


def _lab(data: Path) -> SlurmLab:
    from isthmus.lab.slurm.cluster import SlurmLab

    return SlurmLab(data / "slurm")


def _data_option(data: Path) -> str:
    return "" if data == DEFAULT_FOLDER else f" --data {data}"
