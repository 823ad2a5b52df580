"""`isthmus files`: the files of a job while it runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus.cli.failures import say
from isthmus.cli.options import Format, JobName, Namespace, Output, Token, Url, client_for, format_of
from isthmus.cli.tables import relative, size, table, write, write_names
from isthmus.client.requests import Object
from isthmus.client.sync import Client
from isthmus.errors import Invalid

_MARKS = {"Link": " (link)", "Other": " (not a file)"}


def files(
    name: JobName,
    path: Annotated[str | None, typer.Argument(metavar="PATH", help="Write this file to standard output.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="FILE", help="Write it to this file.")] = None,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """List the files of a running job, or read one of them as it is now.

    Nothing can be changed. When the job has ended its folder goes; `isthmus outputs` lists what it left.

    \b
    Examples:
      isthmus files train-x7k2p
      isthmus files train-x7k2p out/loss.csv | tail -3
      isthmus files train-x7k2p checkpoint/model.pt --to model.pt
    """
    with client_for(url, token, namespace) as client:
        if path is not None:
            _read(client, name, path, to)
            return
        if to is not None:
            raise Invalid("--to says where one file goes; name the file: isthmus files JOB PATH --to FILE")
        found = client.files(name)
    _show(found, format_of(output))


def _read(client: Client, name: str, path: str, to: str | None) -> None:
    pieces = client.read_file(name, path)
    if to is None:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        return
    first = next(pieces, b"")  # what is wrong is reported before a file is made
    with open(to, "wb") as file:  # noqa: PTH123
        file.write(first)
        for piece in pieces:
            file.write(piece)


def _show(found: Object, form: Format) -> None:
    listed = found.get("files") or []
    if form in (Format.JSON, Format.YAML):
        write(found, form)
    elif form is Format.NAME:
        write_names(str(file["path"]) for file in listed)
    else:
        table(["SIZE", "MODIFIED", "PATH"], [_row(file) for file in listed])
    if not found.get("complete", True):
        say(f"only {len(listed)} are listed; there are more")


def _row(file: Object) -> list[str]:
    is_file = file["kind"] == "File"
    ago = relative(parse_timestamp(str(file["modified"])), utcnow())
    return [size(file["size"]) if is_file else "", f"{ago} ago", f"{file['path']}{_MARKS.get(str(file['kind']), '')}"]
