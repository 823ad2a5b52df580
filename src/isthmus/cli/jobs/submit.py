"""`isthmus submit`: a manifest or a script, without waiting for its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.columns import columns_of
from isthmus.cli.failures import say
from isthmus.cli.identity.roles import needs_member
from isthmus.cli.manifests import read_manifests
from isthmus.cli.options import DryRun, Force, Format, Namespace, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import show
from isthmus.client.sync import Client
from isthmus.errors import Invalid

from .batches import honour
from .name_checks import check_names


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A manifest (YAML or JSON) or a script; - is stdin.")],
    args: Annotated[list[str] | None, typer.Argument(metavar="ARGS…", help="Arguments of the script.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the job.")] = None,
    files: Annotated[str | None, typer.Option(metavar="DIR", help="Folder to send along.")] = None,
    deadline: Annotated[str | None, typer.Option(help="When the result is wanted: a time, or 2h from now.")] = None,
    dry_run: DryRun = False,
    force: Force = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Submit a job from a file and leave. Each job is created exactly once, even if replies are lost.

    A file that ends in .yaml, .yml or .json holds Job manifests; anything else is a script, run by the interpreter in
    its first line, or else .py by python3 and the rest by sh. Its #SBATCH lines are
    honoured, and those that cannot be are named.

    \b
    Examples:
      isthmus submit job.yaml
      isthmus submit --deadline 2h train.yaml
      isthmus submit --files . train.sh --epochs 3
      generate-manifest | isthmus submit -
    """
    form = format_of(output)
    with client_for(url, token, namespace) as client, needs_member(client, "submitting a job"):
        sent = client.send_folder(_whole(files), notice=say) if files else None
        wanted = [honour(client, job, "" if file == "-" else file) for job in _jobs(file, args or [], name, sent)]
        if deadline:
            from .running import deadline_of

            for job in wanted:
                job.setdefault("spec", {})["deadline"] = deadline_of(deadline)
        if not force:
            check_names(client, wanted, namespace=namespace)
        if dry_run:
            for job in wanted:
                _say_plan(client, client.create(job, dry_run=True, namespace=namespace), namespace)
            return
        created = [client.submit(job).object for job in wanted]
    if form in (Format.TABLE, Format.WIDE):
        sys.stdout.write("".join(f"job/{job['metadata']['name']} submitted\n" for job in created))
    else:
        show(created, columns_of("Job"), form, single=len(created) == 1)


def _say_plan(client: Client, job: dict[str, Any], namespace: str | None) -> None:
    """What the server made of a job that it did not keep, and where it would go."""
    meta = job["metadata"]
    sys.stdout.write(f"job/{meta.get('name') or meta.get('generateName', '')} would be created (dry run)\n")
    plan = client.plan(job, namespace=namespace or meta.get("namespace"))
    if reported := plan.get("message"):
        sys.stdout.write(f"  {reported}\n")


def _a(word: str) -> str:
    return f"{'an' if word[:1] in 'AEIOU' else 'a'} {word}"


def _whole(folder: str) -> Path:
    """A folder that was named is sent whatever its size."""
    return Path(folder).absolute()


def _jobs(file: str, args: list[str], name: str | None, sent: dict[str, Any] | None) -> list[dict[str, Any]]:
    if file == "-" or file.endswith((".yaml", ".yml", ".json")):
        found = read_manifests([file])
        wrong = next((obj for obj in found if obj.get("kind") != "Job"), None)
        if wrong is not None and not wrong.get("kind"):
            raise Invalid(
                f"{file} has no kind; write apiVersion: isthmus.dev/v1 and kind: Job above its spec. "
                f"A short task file is run by `isthmus run -d {file}`"
            )
        if wrong is not None:
            raise Invalid(
                f"{file} holds {_a(str(wrong.get('kind')))}; submit takes jobs, use `isthmus apply -f {file}`"
            )
        if args:
            raise Invalid("a manifest takes no arguments; write them into spec.args or spec.command")
        if name and len(found) != 1:
            raise Invalid(f"{file} holds {len(found)} jobs; --name is for one")
        for job in found:
            if name:
                job.setdefault("metadata", {})["name"] = name
            if sent and sent["count"]:
                job.setdefault("spec", {})["files"] = sent
        return found
    from isthmus.client.jobs import JobOptions, job_manifest

    from .running import script_text

    options = JobOptions(name=name, args=args)
    job = job_manifest(None, script_text(file), sent, options)
    if not name:
        from isthmus.client.jobs import name_for

        job["metadata"] = {"generateName": f"{name_for([file])}-"}
    return [job]
