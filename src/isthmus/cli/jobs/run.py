"""`isthmus run`, as Typer reads it: the full definition, with help. `run_words` reads the ordinary case faster."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli.completion import complete_devices, complete_jobs, complete_sites
from isthmus.cli.options import Force, Format, Namespace, Output, Token, Url, said_before

from .run_words import RunOptions


def run(
    words: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="Command and arguments, or a script file.")],
    name: Annotated[str | None, typer.Option(help="Name of the job.", show_default="made of the command")] = None,
    files: Annotated[str | None, typer.Option(metavar="DIR", help="Folder to send along, whatever its size.")] = None,
    no_files: Annotated[bool, typer.Option("--no-files", help="Send nothing along.")] = False,
    stdin: Annotated[
        bool,
        typer.Option("--stdin", "-i", help="Send standard input along, whatever it is; from a terminal to Ctrl-D."),
    ] = False,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="Do not send standard input along.")] = False,
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS[:N]", help="Board or accelerator.", autocompletion=complete_devices),
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs, of whichever class there is.")] = None,
    cpus: Annotated[str | None, typer.Option("--cpus", "-c", help="Such as 4 or 0.5.", show_default="1")] = None,
    memory: Annotated[str | None, typer.Option("--memory", "-m", help="Such as 512Mi or 8G.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Machines.", show_default="1")] = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks.", show_default="1")] = None,
    time: Annotated[str | None, typer.Option("--time", "-t", help="End it after this long: 30m, 1h30m.")] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(
            help="Only at this site, or one of these; any: where there is room.", autocompletion=complete_sites
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="EXPRESSION", help="Over labels of sites: 'location == IT and price < 2'.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="K[=V]", help="Variable; K alone takes its value here.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Container image: of a registry, or oci-archive:FILE, which is sent along.")
    ] = None,
    requirements: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Python packages for it: requirements.txt or pyproject.toml of this machine."
        ),
    ] = None,
    array: Annotated[str | None, typer.Option(metavar="0-9[%3]", help="Many times; %3: three at once.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB[:CONDITION]",
            help="Wait for a job: succeeded (default), failed, finished, started.",
            autocompletion=complete_jobs,
        ),
    ] = None,
    outputs_of: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="JOB[:DIR]",
            help="Wait for a job and take its outputs along, into this folder or a folder in it.",
            autocompletion=complete_jobs,
        ),
    ] = None,
    retries: Annotated[int | None, typer.Option(min=0, help="Number of retries.", show_default="0")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.", show_default="0")] = None,
    deadline: Annotated[str | None, typer.Option(help="When the result is wanted: a time, or 2h from now.")] = None,
    late_cost: Annotated[float | None, typer.Option(min=0, help="What an hour late costs.", show_default="36")] = None,
    any_device: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLASS[:N,N]",
            help="One of these boards, whichever serves the deadline best.",
            autocompletion=complete_devices,
        ),
    ] = None,
    expect: Annotated[
        list[str] | None, typer.Option(metavar="[CLASS:N=]TIME", help="How long it takes: 1h, gpu:2=40m.")
    ] = None,
    restartable: Annotated[
        bool, typer.Option("--restartable", help="May be stopped for others and go on later.")
    ] = False,
    checkpoint: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Files that a restarted job finds again.")
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Files to bring back at the end.")
    ] = None,
    force: Force = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Write the job's name and leave it running.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing of our own on standard error.")] = False,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
    output: Output = None,
) -> None:
    """Run a command as if it ran here: live output, its exit code, this folder.

    The current folder is sent if it is small (2,000 files, 100 MB), without virtual environments and what .gitignore
    and .isthmusignore name; only what the server does not have goes over the wire. From your home folder, or /,
    nothing is sent. A script file is run by the interpreter in its first line; without one, .py by python3, anything
    else by sh; #SBATCH lines are honoured, and those that cannot be are named. Where standard output and standard
    error go to the same place, they keep their order.

    Standard input is sent along if it is a pipe or a file that the command has to itself: it is read to its end first,
    up to 1 GiB. One that the calling script reads too, as in `while read`, is left alone: -i sends it.

    \b
    Examples:
      isthmus run -- python train.py --epochs 3
      isthmus run --device akida -- python infer.py
      isthmus run --gpus 1 -- python train.py
      zcat reads.gz | isthmus run -- python count.py
      isthmus run task.yaml              a short file: command, cpus, gpus, outputs, …
      isthmus run -c 4 -m 8Gi -t 1h --outputs 'out/*.csv' -- ./simulate
      isthmus run --where 'location == IT and price < 2' job.sh
      isthmus run --array 0-9%3 --outputs out.csv -- python sweep.py    brings 0/out.csv, 1/out.csv, …
      isthmus run --detach -o json -- python train.py
      isthmus run --any-device gpu:1,2 --any-device akida --deadline 2h -- python train.py
      isthmus run --after train:succeeded -- python report.py
      isthmus run --site any --from train -- python report.py    with what train left, wherever there is room

    Ctrl-C asks whether to detach or to cancel; twice cancels. Without a terminal it cancels, as does SIGTERM. A
    terminal that closes leaves the job running.

    Exit codes: the command's own; 128+N if signal N ended it; 124 if its time was over; 125 if it never ran; 130
    if it was cancelled; 2 to 6 as for every command if it could not be submitted.
    """
    from .running import run as run_now

    before = said_before()
    options = RunOptions(
        words=tuple(words),
        name=name,
        files=files,
        no_files=no_files,
        stdin=stdin,
        no_stdin=no_stdin,
        device=tuple(device or ()),
        gpus=gpus,
        cpus=cpus,
        memory=memory,
        nodes=nodes,
        tasks=tasks,
        time=time,
        site=tuple(site or ()),
        where=where,
        env=tuple(env or ()),
        image=image,
        requirements=requirements,
        array=array,
        after=tuple(after or ()),
        outputs_of=tuple(outputs_of or ()),
        retries=retries,
        priority=priority,
        deadline=deadline,
        late_cost=late_cost,
        any_device=tuple(any_device or ()),
        expect=tuple(expect or ()),
        restartable=restartable,
        checkpoint=tuple(checkpoint or ()),
        outputs=tuple(outputs or ()),
        force=force,
        detach=detach,
        quiet=quiet,
        namespace=namespace or before.namespace,
        url=url or before.url,
        token=token or before.token,
        output=(output or (before.output if detach and before.output != Format.TABLE else None)),
    )
    raise typer.Exit(run_now(options))
