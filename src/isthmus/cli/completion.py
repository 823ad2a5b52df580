"""Shell completion: the script for each shell, and names from the server.

A completion that fails, or takes long, must not disturb the line being typed: it offers nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from isthmus.errors import Invalid, IsthmusError

SHELLS = ("bash", "zsh", "fish")


def complete_jobs(incomplete: str) -> list[str]:
    """Names of jobs that begin like this."""
    return _names("jobs", incomplete)


def complete_sites(incomplete: str) -> list[str]:
    """Names of sites that begin like this."""
    return _names("sites", incomplete)


def complete_devices(incomplete: str) -> list[str]:
    """Names of device classes that begin like this."""
    return _names("deviceclasses", incomplete)


def complete_namespaces(incomplete: str) -> list[str]:
    """Names of tenants that begin like this."""
    return _names("tenants", incomplete)


def complete_kinds(incomplete: str) -> list[str]:
    """Kinds that begin like this."""
    from isthmus.client.places import places

    return [place.plural for place in places() if place.plural.startswith(incomplete)]


def _names(kind: str, incomplete: str) -> list[str]:
    from isthmus.client.places import place_of
    from isthmus.client.requests import list_page
    from isthmus.client.sync import Client

    try:
        with Client() as client:
            place = place_of(kind)
            home = client.namespace() if place.namespaced else None
            # The newest page is enough: nobody picks one of a thousand names from a line.
            page = client.ask(list_page(place, home, limit=500)._replace(patience=2.0))
    except (IsthmusError, OSError):
        return []
    names = (str(item["metadata"]["name"]) for item in page.get("items") or ())
    return sorted(name for name in names if name.startswith(incomplete))


def completion(
    shell: Annotated[str | None, typer.Argument(help="bash, zsh or fish.", show_default="the one you use")] = None,
) -> None:
    """Write the completion script for your shell.

    Job names, sites, devices and tenants are completed from the server.

    \b
    Examples:
      eval "$(isthmus completion bash)"                           now, in this shell
      isthmus completion bash >> ~/.bashrc                        for ever
      isthmus completion zsh > ~/.zfunc/_isthmus                  zsh
      isthmus completion fish > ~/.config/fish/completions/isthmus.fish
    """
    wanted = shell or os.environ.get("SHELL", "").rpartition("/")[2]
    if wanted not in SHELLS:
        raise Invalid(f"there is no completion for {wanted or 'your shell'!r}; say bash, zsh or fish")
    sys.stdout.write(_SCRIPTS[wanted])


_SCRIPTS = {
    "bash": """\
_isthmus_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _ISTHMUS_COMPLETE=complete_bash isthmus ) )
    return 0
}
complete -o default -F _isthmus_completion isthmus
""",
    "zsh": """\
#compdef isthmus
_isthmus_completion() {
    eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _ISTHMUS_COMPLETE=complete_zsh isthmus)
}
compdef _isthmus_completion isthmus
""",
    "fish": """\
complete --command isthmus --no-files --arguments \
"(env _ISTHMUS_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
_TYPER_COMPLETE_ARGS=(commandline -cp) isthmus)" \
--condition "env _ISTHMUS_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=is-args \
_TYPER_COMPLETE_ARGS=(commandline -cp) isthmus"
""",
}
