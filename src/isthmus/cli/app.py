"""The commands and where each is defined. A module is imported when one of its commands is called."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from isthmus.errors import Invalid

from .failures import EXIT_CODES_HELP
from .options import Format, Globals, Namespace, Output, Token, Url, note_dashes, remember

if TYPE_CHECKING:
    from isthmus.client.places import Place


class CommandPlace(NamedTuple):
    """Where a command is defined, and the heading it is listed under."""

    module: str
    attribute: str


# In the order in which a newcomer needs them.
COMMANDS = {
    "up": CommandPlace("platform.up", "up"),
    "down": CommandPlace("platform.up", "down"),
    "serve": CommandPlace("platform.up", "serve"),
    "login": CommandPlace("identity.login", "login"),
    "logout": CommandPlace("identity.provider_login", "logout"),
    "console": CommandPlace("platform.console", "console"),
    "run": CommandPlace("jobs.run", "run"),
    "rerun": CommandPlace("jobs.rerun", "rerun"),
    "submit": CommandPlace("jobs.submit", "submit"),
    "plan": CommandPlace("jobs.plan", "plan"),
    "jobs": CommandPlace("jobs.jobs", "jobs"),
    "job": CommandPlace("jobs.jobs", "job"),
    "logs": CommandPlace("jobs.logs", "logs"),
    "cancel": CommandPlace("jobs.jobs", "cancel"),
    "hold": CommandPlace("jobs.jobs", "hold"),
    "release": CommandPlace("jobs.jobs", "release"),
    "ide": CommandPlace("instances.instances", "ide"),
    "instance": CommandPlace("instances.instances", "app"),
    "exec": CommandPlace("jobs.exec", "exec_"),
    "port-forward": CommandPlace("jobs.port_forward", "port_forward"),
    "compare": CommandPlace("experiments.compare", "compare"),
    "experiments": CommandPlace("experiments.experiments", "experiments"),
    "experiment": CommandPlace("experiments.experiments", "experiment"),
    "top": CommandPlace("jobs.top", "top"),
    "files": CommandPlace("jobs.files", "files"),
    "outputs": CommandPlace("jobs.outputs", "outputs"),
    "download": CommandPlace("jobs.outputs", "download"),
    "get": CommandPlace("objects", "get"),
    "apply": CommandPlace("objects", "apply"),
    "delete": CommandPlace("objects", "delete"),
    "sites": CommandPlace("inventory", "sites"),
    "site": CommandPlace("inventory", "site"),
    "devices": CommandPlace("inventory", "devices"),
    "host": CommandPlace("hosts", "host"),
    "images": CommandPlace("images.kept_images", "app"),
    "registry": CommandPlace("images.registry_accounts", "app"),
    "agents": CommandPlace("platform.agents", "app"),
    "agent": CommandPlace("platform.agent", "app"),
    "tenants": CommandPlace("identity.tenants", "app"),
    "tenant": CommandPlace("identity.tenants", "tenant"),
    "token": CommandPlace("identity.tokens", "app"),
    "audit": CommandPlace("identity.audit", "app"),
    "usage": CommandPlace("usage_sums", "usage"),
    "whoami": CommandPlace("identity.login", "whoami"),
    "env": CommandPlace("identity.login", "env"),
    "credential": CommandPlace("identity.provider_login", "credential"),
    "install": CommandPlace("platform.installing", "install"),
    "export": CommandPlace("platform.moving", "export"),
    "import": CommandPlace("platform.moving", "import_"),
    "doctor": CommandPlace("platform.doctor", "doctor"),
    "lab": CommandPlace("platform.lab", "app"),
    "completion": CommandPlace("completion", "completion"),
    "version": CommandPlace("identity.login", "version"),
}
# Options end where the command to be run begins.
_SETTINGS: dict[str, dict[str, Any]] = {
    "run": {"allow_interspersed_args": False},
    "compare": {"allow_interspersed_args": False},
    "exec": {"allow_interspersed_args": False},
}
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


_PLAIN = (
    (r"Input should be a valid integer, .*", "it must be a whole number"),
    (r"Input should be a valid number, .*", "it must be a number"),
    (r"Input should be greater than or equal to", "it must be at least"),
    (r"Input should be less than or equal to", "it must be at most"),
    (r"Value error, ", ""),
)


def plain_words(message: str) -> str:
    """What Typer says of a value, without the words of its model."""
    for pattern, plain in _PLAIN:
        message = re.sub(pattern, plain, message)
    return message


class LazyGroup(TyperGroup):
    """Commands that are found when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All of them: a kind without a command of its own is listed after `get`."""
        names = list(COMMANDS)
        after = names.index("get")
        return [*names[:after], *listings(), *names[after:]]

    def invoke(self, ctx: Any) -> Any:
        """Call it; what is wrong with a value is said in words of ours."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if hasattr(error, "format_message") and isinstance(said := getattr(error, "message", None), str):
                error.message = plain_words(said)  # type: ignore[attr-defined]
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and remember what Click forgets: whether a `--` came before its words."""
        note_dashes(ctx, args)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them."""
        if (home := COMMANDS.get(cmd_name)) is not None:
            return build(cmd_name, home)
        if (place := listings().get(cmd_name)) is not None:
            from .objects import listing

            return _command(cmd_name, listing(place))
        if not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(cmd_name, self.list_commands(ctx), 1)
            hint = f"did you mean {near[0]}?" if near else "`isthmus --help` lists them"
            raise Invalid(f"there is no command {cmd_name!r}; {hint}")
        return None


def listings() -> dict[str, Place]:
    """The kinds that have no command of their own to list them, by the word that does."""
    from isthmus.client.places import places

    return {place.listing: place for place in places() if place.listing.split()[0] not in COMMANDS}


def build(name: str, home: CommandPlace) -> Any:
    """The command that is defined there."""
    return _command(name, getattr(import_module(f".{home.module}", __package__), home.attribute))


def _command(name: str, found: Any) -> Any:
    """The command, as Typer makes it of a function or of a group of functions."""
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
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_write_version)
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
