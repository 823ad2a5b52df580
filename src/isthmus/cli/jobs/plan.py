"""`isthmus plan`: where a job would go, when it would end and what it would cost. Nothing is submitted or changed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.completion import complete_devices, complete_sites
from isthmus.cli.options import Format, Namespace, Output, Token, Url, client_for, follows_dashes, format_of, job_name
from isthmus.cli.tables import write
from isthmus.errors import Invalid, NotFound

from .plan_pages import plan_page
from .waiting import ANY_SITE

if TYPE_CHECKING:
    from isthmus.client.jobs import JobOptions

_MANIFESTS = (".yaml", ".yml", ".json")


def plan(
    ctx: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(metavar="FILE|JOB|COMMAND…", help="A manifest, the name of a job, or a command of its words."),
    ],
    deadline: Annotated[str | None, typer.Option(help="When the result is wanted: a time, or 2h from now.")] = None,
    late_cost: Annotated[float | None, typer.Option(min=0, help="What an hour late costs.", show_default="36")] = None,
    any_device: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS[:N,N]", help="One of these boards.", autocompletion=complete_devices),
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option(metavar="CLASS[:N]", help="Board.", autocompletion=complete_devices)
    ] = None,
    expect: Annotated[
        list[str] | None, typer.Option(metavar="[CLASS:N=]TIME", help="How long it takes: 1h, gpu:2=40m.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs, of whichever class there is.")] = None,
    cpus: Annotated[str | None, typer.Option("--cpus", "-c", help="Such as 4 or 0.5.", show_default="1")] = None,
    memory: Annotated[str | None, typer.Option("--memory", "-m", help="Such as 512Mi or 8G.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Machines.", show_default="1")] = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks.", show_default="1")] = None,
    time: Annotated[str | None, typer.Option("--time", "-t", help="End it after this long: 30m, 1h30m.")] = None,
    image: Annotated[str | None, typer.Option(help="Container image.")] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(
            help="Only at this site, or one of these; any: where there is room.", autocompletion=complete_sites
        ),
    ] = None,
    where: Annotated[str | None, typer.Option(metavar="EXPRESSION", help="Over labels of sites.")] = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="As if nothing were sent along.")] = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Ask what if: where a job would go, when it would end, what it would cost.

    For a job that is not submitted yet (a manifest, or a command with options as for `isthmus run`), or for one that
    is, perhaps with another deadline. Past runs of the same command with the same files say how long it takes.

    \b
    Examples:
      isthmus plan job.yaml
      isthmus plan job.yaml --deadline 2h
      isthmus plan --any-device gpu:1,2 --any-device akida --deadline 1h -- python train.py
      isthmus plan train-x7k2p --deadline 30m
      isthmus plan -- ./simulate         after --, one word is a command too
    """
    from isthmus.client.jobs import JobOptions

    from .running import deadline_of

    said = JobOptions(
        any_devices=any_device or (),
        devices=device or (),
        expect=expect or (),
        cpus=cpus,
        memory=memory,
        nodes=nodes,
        tasks=tasks,
        time_limit=time,
        image=image,
        sites=[] if ANY_SITE in (site or ()) else site or (),
        where=where,
        deadline=deadline_of(deadline),
    )
    with client_for(url, token, namespace) as client:
        if gpus:
            from .gpus import gpus_as_device

            said["devices"] = [*(device or ()), gpus_as_device(client, gpus)]
        named = not (follows_dashes(ctx) or site or _is_described(said))
        what = _what(words, said, named=named, no_files=no_files)
        try:
            found = client.plan(what, deadline=deadline_of(deadline), late_cost_per_hour=late_cost)
        except NotFound as error:
            hint = f"for a command write `isthmus plan -- {what}`" if isinstance(what, str) else ""
            raise NotFound(f"{error.message}; {hint}" if hint else error.message) from None
    form = format_of(output)
    if form in (Format.JSON, Format.YAML):
        write(found, form)
    else:
        sys.stdout.write(plan_page(found))


def _what(words: list[str], said: JobOptions, *, named: bool, no_files: bool) -> dict[str, Any] | str:
    """A manifest, or the name of a job."""
    if len(words) == 1 and (words[0] == "-" or words[0].endswith(_MANIFESTS)):
        from isthmus.cli.manifests import read_manifests

        found = [obj for obj in read_manifests(words) if obj.get("kind") == "Job"]
        if len(found) != 1:
            raise Invalid(f"{words[0]} holds {len(found)} jobs; a plan is for one")
        return found[0]
    if len(words) == 1 and "/" not in job_name(words[0]) and named:
        return job_name(words[0])
    from isthmus.client.jobs import job_manifest

    from .running import what_to_run

    files = None if no_files else _files()
    command, script, args = what_to_run(tuple(words), here=files is not None)
    said["args"] = args
    return job_manifest(command, script, files, said)


def _is_described(said: JobOptions) -> bool:
    """Whether options say what the job needs: then the word is a command. A deadline alone may be a job's."""
    return any(value for name, value in said.items() if name != "deadline")


def _files() -> dict[str, Any] | None:
    """The folder that `isthmus run` would send: its digest says which past runs are alike. Nothing is sent."""
    from isthmus.client.config import cache_home
    from isthmus.client.folders import FolderLimits, is_everything, read_folder
    from isthmus.client.sync import HERE
    from isthmus.resources.work.trees import Tree, digest_of

    if is_everything(HERE):
        return None
    found = read_folder(HERE, limits=FolderLimits(), cache_home=cache_home())
    if not found.files:
        return None
    return {"tree": digest_of(Tree.model_validate_json(found.document).encode()), "count": found.files}
