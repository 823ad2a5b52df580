"""`isthmus outputs`, `isthmus download`: the files that a job left."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from isthmus.cli.failures import say
from isthmus.cli.options import Format, JobName, Namespace, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import counted, size, table, write, write_names


def outputs(
    name: JobName, namespace: Namespace = None, output: Output = None, url: Url = None, token: Token = None
) -> None:
    """List the files that a job left.

    Of an array, what each element left is below its index.

    \b
    Example:
      isthmus outputs train-x7k2p
    """
    form = format_of(output)
    with client_for(url, token, namespace) as client:
        found = client.outputs(name)
    files = found.get("files") or []
    if form in (Format.JSON, Format.YAML):
        write(found, form)
    elif form is Format.NAME:
        write_names(str(file["path"]) for file in files)
    else:
        table(["SIZE", "PATH"], [[size(file.get("size", 0)), str(file["path"])] for file in files])


def download(
    name: JobName,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where to put them.")] = ".",
    file: Annotated[
        str | None, typer.Option("--file", metavar="PATH", help="Only this file, to standard output.")
    ] = None,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Bring back the files that a job left. Files that are there already are replaced.

    What the elements of an array left goes into folders named by their indices: 0/out.csv, 1/out.csv.

    \b
    Examples:
      isthmus download train-x7k2p
      isthmus download train-x7k2p results/
      isthmus download train-x7k2p --file out/loss.csv | head
    """
    with client_for(url, token, namespace) as client:
        if file is not None:
            sys.stdout.buffer.write(client.read_output(name, file))
            return
        paths = client.download(name, folder)
    write_names(paths)
    say(f"{counted(len(paths), 'file')} in {folder}")
