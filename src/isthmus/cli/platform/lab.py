"""`isthmus lab`: real clusters on this machine, to try things out on."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.app import group
from isthmus.cli.failures import say
from isthmus.cli.options import Format, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import write
from isthmus.client.flows import TERMINAL
from isthmus.client.sync import Client
from isthmus.errors import Forbidden, Invalid, Misconfigured, NotFound, Unauthenticated, Unavailable

from .lab_agents import agents_in, link_agent, remove_agents, up_agents
from .lab_registry import down_registry, registry_in, up_registry

if TYPE_CHECKING:
    from isthmus.lab.kubernetes.cluster import KubernetesLab
    from isthmus.lab.layout import LabStatus
    from isthmus.lab.slurm.cluster import SlurmLab
    from isthmus.lab.slurm.layout import LabSettings

app = group(
    "Real clusters on this machine, Slurm and Kubernetes, a registry, and machines with agents, for trying things out. "
    "Needs root."
)

DEFAULT_FOLDER = Path("/var/lib/isthmus-lab")
_REMOVAL_SECONDS = 30.0
"""For jobs of a lab that is erased to end."""
Data = Annotated[
    Path, typer.Option("--data", help="Folder of everything the lab keeps.", show_default=str(DEFAULT_FOLDER))
]


Binaries = Annotated[
    Path | None, typer.Option("--binaries", help="Folder of Kubernetes' programs; none means PATH, cache, or get them.")
]
Release = Annotated[
    str,
    typer.Option("--release", metavar="NAME", help="Slurm of this Debian release, such as trixie; none: installed."),
]


@app.command("up")
def up(
    slurm: Annotated[int | None, typer.Option(min=1, max=200, metavar="N", help="A Slurm cluster of N nodes.")] = None,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="A Kubernetes cluster.")] = False,
    registry: Annotated[bool, typer.Option("--registry", help="A registry of container images.")] = False,
    agents: Annotated[
        int | None, typer.Option(min=1, max=200, metavar="N", help="N machines with agents: sites agent-1, agent-2, …")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=50, metavar="N", help="Nodes of the Kubernetes cluster.")] = 1,
    accounting: Annotated[bool, typer.Option("--accounting", help="Slurm: with slurmdbd on MariaDB.")] = False,
    energy: Annotated[bool, typer.Option("--energy", help="Slurm: with an energy counter on every node.")] = False,
    release: Release = "",
    binaries: Binaries = None,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Kubernetes: start nothing, use the cluster that this names.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Kubernetes: image of jobs that name none.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the site; lab, or lab-kubernetes, unless given.")] = None,
    data: Data = DEFAULT_FOLDER,
    url: Url = None,
    token: Token = None,
) -> None:
    """Start a cluster or registry, or what is missing of it. The first node has a board (akida), Slurm's second a GPU.

    Where a server is known (`isthmus up` on this machine, or a login), the cluster becomes one of its sites.

    \b
    Examples:
      isthmus lab up --slurm 4
      isthmus lab up --slurm 8 --accounting --energy --data ./lab
      isthmus lab up --slurm 2 --release trixie
      isthmus lab up --kubernetes --nodes 2
      isthmus lab up --registry
      isthmus lab up --agents 5
      isthmus lab up --kubernetes --kubeconfig ~/.kube/config --image python:3.12
    """
    if slurm is None and not kubernetes and not registry and agents is None:
        raise Invalid(
            "say what to start: --slurm 4 for a Slurm cluster of four nodes, --kubernetes, --registry, or --agents 2"
        )
    if slurm is not None:
        from isthmus.lab.slurm.layout import LabSettings

        wished = LabSettings(accounting=accounting, energy=energy, release=release)
        _up_slurm(slurm, wished, name or "lab", data, url, token)
    if kubernetes:
        chosen = name if name and slurm is None else "lab-kubernetes"
        _up_kubernetes(nodes, binaries, kubeconfig, image, chosen, data, url, token)
    if registry:
        up_registry(data, _data_option(data), url, token)
    if agents is not None:
        up_agents(agents, data, _data_option(data), url, token)


@app.command("link")
def link(
    name: Annotated[str, typer.Argument(metavar="SITE", help="A machine of the lab, such as agent-1.")],
    state: Annotated[str, typer.Argument(metavar="down|up|slow|lossy|far", help="What its link shall be like.")],
    latency: Annotated[str | None, typer.Option(metavar="DURATION", help="One way, such as 300ms.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="BITS", help="Bits per second, such as 256k or 10M.")] = None,
    loss: Annotated[float | None, typer.Option(min=0, max=100, metavar="PERCENT", help="Packets lost.")] = None,
    data: Data = DEFAULT_FOLDER,
) -> None:
    """Cut the link of a machine with an agent, mend it, or make it slow, lossy or far.

    \b
    Examples:
      isthmus lab link agent-1 down
      isthmus lab link agent-1 up
      isthmus lab link agent-1 slow --rate 64k --latency 500ms
    """
    link_agent(data, name, state, latency, rate, loss)


def _up_slurm(slurm: int, wished: LabSettings, name: str, data: Path, url: str | None, token: str | None) -> None:
    from isthmus.lab.slurm.registering import manifests

    lab = _slurm(data)
    begin = time.monotonic()
    # Who wishes for nothing takes a lab that exists as it is.
    lab.up(slurm, None if lab.place.exists and wished == type(wished)() else wished)
    say(f"Slurm is up with {len(lab.status().nodes)} nodes after {time.monotonic() - begin:.1f} s")
    known = _register(manifests(lab.place, name), name, url, token)
    sys.stdout.write(
        f"  use it      export SLURM_CONF={lab.place.conf}{_path(lab)}; sinfo\n"
        f"  slurmrestd  {lab.place.rest_url}\n"
        + (f"  try         isthmus run --site {name} --device akida -- hostname\n" if known else "")
        + f"  stop        isthmus lab down{_data_option(data)}\n"
    )


def _path(lab: SlurmLab) -> str:
    return f" PATH={lab.place.programs}/bin:$PATH" if lab.settings.release else ""


def _up_kubernetes(
    nodes: int,
    binaries: Path | None,
    kubeconfig: Path | None,
    image: str | None,
    name: str,
    data: Path,
    url: str | None,
    token: str | None,
) -> None:
    from isthmus.lab.kubernetes.layout import IMAGE
    from isthmus.lab.kubernetes.registering import manifests

    if kubeconfig is not None:
        if image is None:
            raise Invalid("say with --image what jobs run that name no image, such as --image python:3.12")
        if not _register(manifests(kubeconfig.absolute(), name, image=image, lab=False), name, url, token):
            raise typer.Exit(1)
        return
    lab = _kubernetes(data, binaries)
    begin = time.monotonic()
    lab.up(nodes)
    say(f"Kubernetes is up with {len(lab.status().nodes)} nodes after {time.monotonic() - begin:.1f} s")
    made = manifests(lab.place.site_kubeconfig, name, image=image or IMAGE)
    known = _register(made, name, url, token)
    sys.stdout.write(
        f"  use it      export KUBECONFIG={lab.place.kubeconfig}; kubectl get nodes\n"
        + (f"  try         isthmus run --site {name} --device akida -- hostname\n" if known else "")
        + f"  stop        isthmus lab down{_data_option(data)}\n"
    )


@app.command("binaries")
def binaries(folder: Binaries = None, release: Release = "") -> None:
    """Find the programs of Kubernetes, or download or build them into the cache; prints the folder.

    With a Debian release it is that release's Slurm.

    \b
    Examples:
      isthmus lab binaries
      isthmus lab binaries --release trixie
    """
    from isthmus.lab.kubernetes.binaries import ensure
    from isthmus.lab.slurm.releases import fetch

    sys.stdout.write(f"{fetch(release) if release else ensure(folder)}\n")


@app.command("image")
def image(
    archive: Annotated[
        Path | None, typer.Option(help="An image that was built already, as `podman save` writes it.")
    ] = None,
    data: Data = DEFAULT_FOLDER,
) -> None:
    """Make an image of this Isthmus, with its Python and packages, and load it into the nodes of the Kubernetes lab.

    \b
    Example:
      isthmus lab image
      isthmus lab image --archive isthmus.tar
    """
    lab = _kubernetes(data)
    if not lab.status().running:
        raise Invalid("the Kubernetes lab does not run; start it with: isthmus lab up --kubernetes")
    name = lab.load_operator(archive)
    kubeconfig = lab.place.kubeconfig
    sys.stdout.write(
        f"  image       {name}\n"
        f"  install it  isthmus install --kubernetes --kubeconfig {kubeconfig} --image {name} --replicas 2\n"
    )


@app.command("down")
def down(
    erase: Annotated[bool, typer.Option("--erase", help="Remove its files too, with all its jobs.")] = False,
    data: Data = DEFAULT_FOLDER,
    url: Url = None,
    token: Token = None,
) -> None:
    """Stop everything of the lab. Its files stay, unless erased, and the next `up` goes on with them.

    Erased, it is no longer a site of the server that is known either; jobs that ran there and have not ended are lost.

    \b
    Example:
      isthmus lab down --erase
    """
    if erase:
        unregister(data, url, token)
    labs = [lab for lab in (_slurm(data), _kubernetes(data), agents_in(data)) if lab.place.exists]
    registry = registry_in(data)
    if registry.place.exists:
        down_registry(registry, erase=erase, url=url, token=token)
    elif not labs:
        say(f"there is no lab in {data}")
        return
    for lab in labs:
        lab.down(erase=erase)
    say("stopped; nothing of it runs any more" if not erase else "stopped and removed")


@app.command("status")
def status(data: Data = DEFAULT_FOLDER, output: Output = None) -> None:
    """What runs of the lab, and how its nodes are.

    \b
    Example:
      isthmus lab status
    """
    slurm, kubernetes = _slurm(data).status(), _kubernetes(data).status()
    registry, agents = registry_in(data).status(), agents_in(data).status()
    others = {"kubernetes": kubernetes, "registry": registry, "agents": agents}
    reported = {**_reported(slurm), **{label: _reported(found) for label, found in others.items()}}
    if (form := format_of(output)) in (Format.JSON, Format.YAML):
        write(reported, form)
        return
    for label, found in (("Slurm", slurm), ("Kubernetes", kubernetes), ("registry", registry), ("agents", agents)):
        if not found.running:
            sys.stdout.write(f"no {label} runs from {found.folder}\n")
            continue
        daemons = ", ".join(f"{name} ({pid})" for name, pid in found.daemons.items())
        sys.stdout.write(f"{label}\ndaemons  {daemons}\n")
        for name, state in found.nodes.items():
            sys.stdout.write(f"node     {name}  {state}\n")


def _reported(found: LabStatus) -> dict[str, Any]:
    return {
        "folder": str(found.folder),
        "running": found.running,
        "daemons": found.daemons,
        "nodes": found.nodes,
    }


def _register(manifests: list[dict[str, Any]], name: str, url: str | None, token: str | None) -> bool:
    """Make the lab a site of the server that is known; whether it is one."""
    try:
        with client_for(url, token) as client:
            for obj in manifests:
                client.apply(obj)
    except (Misconfigured, Unavailable) as error:
        say(f"not registered as a site: {error.message}")
        return False
    say(f"registered as site {name}")
    return True


def unregister(data: Path, url: str | None, token: str | None) -> None:
    """Remove the sites that are this lab: by its mark, and by the folder that they use."""
    try:
        with client_for(url, token) as client:
            for site in client.list("sites", labels="isthmus.dev/lab=true"):
                if _is_of(site, data):
                    _remove(client, str(site["metadata"]["name"]))
            remove_agents(client, data, _remove)
    except (Misconfigured, Unavailable, Forbidden, Unauthenticated) as error:
        say(f"sites of the lab were not removed from any server: {error.message}")


def _remove(client: Client, name: str) -> None:
    """Remove a site with its jobs, as long as it can still be asked to end them."""
    for job in client.list("jobs", everywhere=True):
        status = job.get("status") or {}
        if status.get("site") == name and status.get("phase") not in TERMINAL:
            client.cancel(job["metadata"]["name"], namespace=job["metadata"]["namespace"])
    client.delete("sites", name)
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while time.monotonic() < deadline:
        try:
            client.get("sites", name)
        except NotFound:
            say(f"site {name} is removed")
            return
        time.sleep(0.2)
    say(f"site {name} is being removed; it goes when its jobs have ended and it was let go of")


def _is_of(site: dict[str, Any], data: Path) -> bool:
    """Whether a site uses the files of the lab in a folder."""
    spec = site["spec"]
    used = (spec.get("slurm") or {}).get("conf") or (spec.get("kubernetes") or {}).get("kubeconfig")
    return used is not None and Path(used).is_relative_to(data.absolute())


def _slurm(data: Path) -> SlurmLab:
    from isthmus.lab.slurm.cluster import SlurmLab

    return SlurmLab(data / "slurm")


def _kubernetes(data: Path, binaries: Path | None = None) -> KubernetesLab:
    from isthmus.lab.kubernetes.cluster import KubernetesLab

    return KubernetesLab(data / "kubernetes", binaries)


def _data_option(data: Path) -> str:
    return "" if data == DEFAULT_FOLDER else f" --data {data}"
