"""Options that many commands share, each defined once; and the client they lead to."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from isthmus.errors import NotFound

from .completion import complete_jobs, complete_namespaces

if TYPE_CHECKING:
    from isthmus.client.sync import Client


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Globals(NamedTuple):
    """What was said before the command; what is said after it goes first."""

    output: Format = Format.TABLE
    namespace: str | None = None
    url: str | None = None
    token: str | None = None


Output = Annotated[Format | None, typer.Option("--output", "-o", help="How to write the result.", show_default="table")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="The tenant to work in.",
        show_default="ISTHMUS_NAMESPACE, or the one of your token",
        autocompletion=complete_namespaces,
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", help="The server's address.", show_default="ISTHMUS_URL, or the server you logged in to"),
]
Token = Annotated[
    str | None,
    typer.Option("--token", help="Your token. Others can see it in the list of processes: prefer ISTHMUS_TOKEN."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Let the server check everything, and keep nothing.")]
Force = Annotated[
    bool, typer.Option("--force", help="Submit it although a site, device class or job that it names does not exist.")
]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In every tenant that you may see.")]
Labels = Annotated[
    str | None, typer.Option("--selector", "-l", metavar="LABELS", help="Such as project=mri,stage!=test.")
]


def job_name(text: str) -> str:
    """The name of a job, also as `-o name` writes it: job/NAME."""
    return text.removeprefix("job/").removeprefix("jobs/")


def _named(text: str) -> str:
    name = job_name(text)
    if "/" in name:
        raise NotFound(f"there is no job {name!r:.80}: names hold no /; an element of an array is ARRAY-INDEX")
    return name


JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="Name of the job.", autocompletion=complete_jobs, parser=_named)
]
JobNames = Annotated[
    list[str], typer.Argument(metavar="JOB…", help="Names of jobs.", autocompletion=complete_jobs, parser=_named)
]

_said = Globals()


def remember(said: Globals) -> None:
    """Keep what was said before the command."""
    global _said
    _said = said


def client_for(url: str | None = None, token: str | None = None, namespace: str | None = None) -> Client:
    """The client that the options lead to."""
    from .naming import NamingClient

    return NamingClient(url or _said.url, token or _said.token, namespace or _said.namespace)


def said_before() -> Globals:
    """What was said before the command."""
    return _said


_DASHES = f"{__name__}.dashes"


def note_dashes(ctx: Any, words: list[str]) -> None:
    """Remember whether `--` says that what follows is a command."""
    ctx.meta[_DASHES] = "--" in words


def follows_dashes(ctx: Any) -> bool:
    """Whether `--` was said before the words."""
    return bool(ctx.meta.get(_DASHES))


def format_of(output: Format | None) -> Format:
    """The format that the options lead to."""
    return output or _said.output
