"""`isthmus rerun JOB`: the same job once more, with changes. The files are on the server already."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli.completion import complete_devices, complete_sites
from isthmus.cli.identity.roles import needs_member
from isthmus.cli.options import Force, JobName, Namespace, Output, Token, Url, client_for, format_of, said_before
from isthmus.client.jobs import copied, devices_of
from isthmus.client.requests import Object

from .name_checks import check_names
from .run_words import RunOptions
from .running import accompany, env_of
from .waiting import ANY_SITE


def rerun_manifest(job: Object, changes: Object, env: dict[str, str]) -> Object:
    """The job as a new one, with other resources, placement and variables where they are named. Pure."""
    new = copied(job)
    spec = new["spec"]
    for part, values in changes.items():
        if values:
            spec[part] = {**(spec.get(part) or {}), **values} if isinstance(values, dict) else values
    if env:
        kept = [variable for variable in spec.get("env") or () if variable["name"] not in env]
        spec["env"] = [*kept, *({"name": name, "value": value} for name, value in env.items())]
    return new


def rerun(
    name: JobName,
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS[:N]", help="Other devices.", autocompletion=complete_devices),
    ] = None,
    cpus: Annotated[str | None, typer.Option("--cpus", "-c", help="Other CPUs.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", "-m", help="Other memory.")] = None,
    time: Annotated[str | None, typer.Option("--time", "-t", help="Another time limit.")] = None,
    site: Annotated[
        list[str] | None, typer.Option(help="Another site; any: where there is room.", autocompletion=complete_sites)
    ] = None,
    image: Annotated[str | None, typer.Option(help="Another container image.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="K[=V]", help="Another variable.")] = None,
    retries: Annotated[int | None, typer.Option(min=0, help="Another number of retries.")] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Write the job's name and leave it running.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing of our own on standard error.")] = False,
    force: Force = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Run a job once more, as a new job, with the same files; options change what they name.

    \b
    Examples:
      isthmus rerun train-x7k2p
      isthmus rerun train-x7k2p --memory 16Gi --time 4h
      isthmus rerun train-x7k2p --device akida -e EPOCHS=3 --detach
    """
    resources: dict[str, Any] = {"cpus": cpus, "memory": memory, "timeLimit": time}
    if device:
        resources["devices"] = devices_of(device)
    changes: Object = {
        "resources": {key: value for key, value in resources.items() if value},
        "placement": {"sites": [] if ANY_SITE in site else list(site)} if site else {},
        "image": image,
        "retries": {} if retries is None else {"limit": retries},
    }
    with client_for(url, token, namespace) as client, needs_member(client, "running a job"):
        job = rerun_manifest(client.job(name).object, changes, env_of(tuple(env or ())))
        if not force:
            check_names(client, [job], namespace=namespace)
        options = RunOptions(
            words=(name,),
            outputs=tuple(job["spec"].get("outputs") or ()),
            detach=detach,
            quiet=quiet,
            namespace=namespace or said_before().namespace,
            output=format_of(output).value if detach else None,
        )
        raise typer.Exit(accompany(client, client.submit(job), options))
