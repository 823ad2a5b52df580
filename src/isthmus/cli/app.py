"""The commands and where each is defined. A module is imported when one of its commands is called."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from isthmus.errors import Invalid

from .failures import EXIT_CODES_HELP
from .options import Format, Globals, Namespace, Output, Token, Url, remember


class Home(NamedTuple):
    """Where a command is defined, and the heading it is listed under."""

    module: str
    attribute: str


# In the order in which a newcomer needs them.
COMMANDS = {
    "up": Home("up", "up"),
    "down": Home("up", "down"),
    "serve": Home("up", "serve"),
    "login": Home("login", "login"),
    "console": Home("console", "console"),
    "run": Home("run", "run"),
    "submit": Home("submit", "submit"),
    "plan": Home("plan", "plan"),
    "jobs": Home("jobs", "jobs"),
    "job": Home("jobs", "job"),
    "logs": Home("logs", "logs"),
    "cancel": Home("jobs", "cancel"),
    "hold": Home("jobs", "hold"),
    "release": Home("jobs", "release"),
    "compare": Home("compare", "compare"),
    "experiments": Home("experiments", "experiments"),
    "experiment": Home("experiments", "experiment"),
    "top": Home("top", "top"),
    "outputs": Home("outputs", "outputs"),
    "download": Home("outputs", "download"),
    "get": Home("objects", "get"),
    "apply": Home("objects", "apply"),
    "delete": Home("objects", "delete"),
    "sites": Home("inventory", "sites"),
    "devices": Home("inventory", "devices"),
    "tenants": Home("tenants", "app"),
    "token": Home("tokens", "app"),
    "whoami": Home("login", "whoami"),
    "install": Home("installing", "install"),
    "export": Home("moving", "export"),
    "import": Home("moving", "import_"),
    "doctor": Home("doctor", "doctor"),
    "lab": Home("lab", "app"),
    "bench": Home("bench.scheduling", "app"),
    "completion": Home("completion", "completion"),
    "version": Home("login", "version"),
}
# Options end where the command to be run begins.
_SETTINGS: dict[str, dict[str, Any]] = {
    "run": {"allow_interspersed_args": False},
    "compare": {"allow_interspersed_args": False},
}
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class LazyGroup(TyperGroup):
    """Commands that are found when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All of them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them."""
        home = COMMANDS.get(cmd_name)
        if home is None and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(cmd_name, COMMANDS, 1)
            hint = f"did you mean {near[0]}?" if near else "`isthmus --help` lists them"
            raise Invalid(f"there is no command {cmd_name!r}; {hint}")
        return None if home is None else build(cmd_name, home)


def build(name: str, home: Home) -> Any:
    """The command, as Typer makes it of a function or of a group of functions."""
    found = getattr(import_module(f".{home.module}", __package__), home.attribute)
    if isinstance(found, typer.Typer):
        command = typer.main.get_command(found)
    else:
        single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        single.command(name, context_settings=_HELP | _SETTINGS.get(name, {}))(found)
        command = typer.main.get_command(single)
    command.name = name
    return command


def group(help_text: str) -> typer.Typer:
    """A group of commands, such as `isthmus token`."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=help_text,
        context_settings=_HELP,
    )


app = typer.Typer(
    cls=LazyGroup,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=_HELP,
    epilog=EXIT_CODES_HELP,
)


def _write_version(wanted: bool) -> None:
    if wanted:
        from isthmus import __version__

        typer.echo(f"isthmus {__version__}")
        raise typer.Exit


@app.callback()
def before(
    output: Output = None,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
    show_version: Annotated[
        bool, typer.Option("--version", help="Write the version and leave.", is_eager=True, callback=_write_version)
    ] = False,
) -> None:
    """Run work on every machine your institute owns.

    \b
    isthmus up                     start a platform on this machine
    isthmus run -- python job.py   run a command as if it ran here
    isthmus jobs                   what runs, what waits, and why

    `isthmus COMMAND --help` shows examples. Clients obey ISTHMUS_URL, ISTHMUS_TOKEN and ISTHMUS_NAMESPACE;
    ISTHMUS_DEBUG=1 shows where an error comes from.
    """
    remember(Globals(output or Format.TABLE, namespace, url, token))


def call(words: list[str]) -> int:
    """Read the words, call the command, and answer its exit code."""
    command = typer.main.get_command(app)
    try:
        found = command.main(args=words, prog_name="isthmus", standalone_mode=True)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 0 if leave.code is None else 1
    return found if isinstance(found, int) else 0
