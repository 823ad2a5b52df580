"""`isthmus install`: make a Kubernetes cluster a store of Isthmus."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.failures import say
from isthmus.errors import Invalid


def install(
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="Into a Kubernetes cluster.")] = False,
    kubeconfig: Annotated[Path | None, typer.Option(help="How to reach it.", show_default="what kubectl uses")] = None,
    context: Annotated[str | None, typer.Option(help="Which context of it.", show_default="the current one")] = None,
    image: Annotated[str, typer.Option(help="Image with this version of Isthmus.")] = "isthmus:latest",
    replicas: Annotated[int, typer.Option(min=0, help="Control planes; more than one need shared storage.")] = 1,
    storage: Annotated[str, typer.Option(help="Room for files and outputs.")] = "20Gi",
    storage_class: Annotated[str, typer.Option(help="Kind of storage.", show_default="the cluster's default")] = "",
    definitions_only: Annotated[
        bool, typer.Option("--definitions-only", help="Kinds and rights, but no Deployment: you run serve elsewhere.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the server check it, and change nothing.")] = False,
    output: Annotated[str | None, typer.Option("--output", "-o", help="yaml: write it, apply nothing.")] = None,
) -> None:
    """Install Isthmus into a Kubernetes cluster, or bring an installation up to date.

    \b
    Examples:
      isthmus install --kubernetes --image registry.example.org/isthmus:0.1
      isthmus install --kubernetes --dry-run
      isthmus install --kubernetes -o yaml > isthmus.yaml
    """
    from isthmus.kubernetes import kubeconfigs
    from isthmus.server.installing import install as apply
    from isthmus.server.installing import server_minor
    from isthmus.server.manifests import Installation, manifests

    from .places import store_location

    if not kubernetes:
        raise Invalid("say where to: isthmus install --kubernetes (on this machine alone: isthmus up)")
    if output not in (None, "yaml"):
        raise Invalid(f"--output {output!r} is not known here; there is yaml")
    wanted = Installation(image=image, replicas=replicas, storage=storage, storage_class=storage_class)
    if output == "yaml":
        _write(_chosen(manifests(wanted), definitions_only))
        return
    where = f"kubernetes:{kubeconfig}" if kubeconfig else store_location("kubernetes")
    access = kubeconfigs.at(f"{where}#{context}" if context else where)
    from dataclasses import replace

    wanted = replace(wanted, minor=asyncio.run(server_minor(access)))
    for line in asyncio.run(apply(access, _chosen(manifests(wanted), definitions_only), dry_run=dry_run)):
        typer.echo(line)
    if not dry_run:
        say("the admin's token is in the secret isthmus-admin of the namespace isthmus-system", "32")


def _chosen(objects: list[dict[str, object]], definitions_only: bool) -> list[dict[str, object]]:
    left_out = ("Deployment", "Service", "PersistentVolumeClaim") if definitions_only else ()
    return [obj for obj in objects if obj["kind"] not in left_out]


def _write(objects: list[dict[str, object]]) -> None:
    import yaml

    sys.stdout.write("# Made by isthmus install --kubernetes -o yaml. Needs a secret isthmus-admin with admin.token.\n")
    yaml.safe_dump_all(objects, sys.stdout, sort_keys=False, explicit_start=True)
