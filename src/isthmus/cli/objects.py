"""`isthmus get`, `apply`, `delete`: objects of any kind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.client.places import Place, place_of
from isthmus.errors import Invalid, IsthmusError, NotFound, Unauthenticated, Unavailable

from .asking import Yes, confirm_tenant
from .columns import columns_of
from .completion import complete_kinds
from .failures import say
from .jobs.jobs import check_tenant
from .manifests import read_manifests
from .options import DryRun, Everywhere, Format, Labels, Namespace, Output, Token, Url, client_for, format_of
from .tables import show

if TYPE_CHECKING:
    from isthmus.client.sync import Client

Kind = Annotated[str, typer.Argument(metavar="KIND", help="Such as jobs or sites.", autocompletion=complete_kinds)]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Which ones.", show_default="all")]
Fields = Annotated[str | None, typer.Option(help="Such as status.phase=Running.")]
Sources = Annotated[
    list[str] | None, typer.Option("--filename", "-f", metavar="FILE", help="Manifest, folder of manifests, or -.")
]


def get(
    kind: Kind,
    names: Names = None,
    selector: Labels = None,
    field_selector: Fields = None,
    everywhere: Everywhere = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show objects of any kind.

    \b
    Examples:
      isthmus get jobs -l project=mri
      isthmus get site local -o yaml
      isthmus get job/train-x7k2p -o json
    """
    place, wanted = _place(kind, names or [])
    with client_for(url, token, namespace) as client:
        _show(client, place, wanted, selector, field_selector, everywhere, format_of(output))


def listing(place: Place) -> Callable[..., None]:
    """The command that lists a kind which has none of its own."""

    def namespaced(
        names: Names = None,
        selector: Labels = None,
        field_selector: Fields = None,
        everywhere: Everywhere = False,
        namespace: Namespace = None,
        output: Output = None,
        url: Url = None,
        token: Token = None,
    ) -> None:
        with client_for(url, token, namespace) as client:
            _show(client, place, names or [], selector, field_selector, everywhere, format_of(output))

    def for_all(
        names: Names = None,
        selector: Labels = None,
        field_selector: Fields = None,
        output: Output = None,
        url: Url = None,
        token: Token = None,
    ) -> None:
        with client_for(url, token) as client:
            _show(client, place, names or [], selector, field_selector, False, format_of(output))

    command = namespaced if place.namespaced else for_all
    example = f"Examples:\n  isthmus {place.listing}\n  isthmus {place.listing} NAME -o yaml"
    command.__doc__ = f"List {place.plural}: {place.description[:1].lower()}{place.description[1:]}\n\n\b\n{example}"
    return command


def _show(
    client: Client,
    place: Place,
    names: list[str],
    selector: str | None,
    field_selector: str | None,
    everywhere: bool,
    form: Format,
) -> None:
    """Write the objects named, or all of the kind."""
    if names:
        found = [client.get(place.plural, name) for name in names]
    else:
        found = client.list(place.plural, labels=selector, fields=field_selector, everywhere=everywhere)
        if not found and place.namespaced and not everywhere:
            check_tenant(client)
    if not found and form in (Format.TABLE, Format.WIDE):
        say(f"there are no {place.plural}")
        return
    show(found, columns_of(place.kind, everywhere and place.namespaced), form, single=len(names) == 1)


def _place(kind: str, names: list[str]) -> tuple[Place, list[str]]:
    """`job NAME` and `job/NAME` mean the same."""
    word, slash, name = kind.partition("/")
    return place_of(word), [name, *names] if slash and name else names


def apply(
    filename: Sources = None,
    dry_run: DryRun = False,
    namespace: Namespace = None,
    output: Output = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Create what manifests describe, or change what is there to it.

    \b
    Examples:
      isthmus apply -f site.yaml
      isthmus apply -f examples/ --dry-run
      generate | isthmus apply -f -
    """
    form = format_of(output)
    results: list[tuple[dict[str, Any], str]] = []
    first: IsthmusError | None = None
    with client_for(url, token, namespace) as client:
        for obj in _read(filename):
            try:
                result, reported = client.apply(obj, dry_run=dry_run, namespace=namespace)
            except IsthmusError as error:
                first = _go_on(first, error)
                continue
            reported += " (dry run)" if dry_run else ""
            results.append((result, reported))
            if form in (Format.TABLE, Format.WIDE):
                sys.stdout.write(
                    f"{str(result.get('kind', obj['kind'])).lower()}/{result['metadata']['name']} {reported}\n"
                )
                sys.stdout.flush()
    if form not in (Format.TABLE, Format.WIDE):
        show([result for result, _ in results], (), form, single=len(results) == 1)
    if first is not None:
        raise first


def delete(
    kind: Annotated[str | None, typer.Argument(metavar="KIND", autocompletion=complete_kinds)] = None,
    names: Names = None,
    filename: Sources = None,
    cascade: Annotated[str, typer.Option(help="What becomes of owned objects: background, foreground, orphan.")] = (
        "background"
    ),
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="It is no error if it is already gone.")
    ] = False,
    yes: Yes = False,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Delete objects. A job that runs is cancelled first; the name of a tenant is asked for at a terminal.

    \b
    Examples:
      isthmus delete job train-x7k2p
      isthmus delete -f site.yaml
    """
    if cascade.lower() not in ("background", "foreground", "orphan"):
        raise Invalid(f"--cascade {cascade!r} is not one of background, foreground, orphan")
    first: IsthmusError | None = None
    with client_for(url, token, namespace) as client:
        for place, name, home in _targets(kind, names or [], filename, namespace):
            if place.kind == "Tenant":
                confirm_tenant(name, yes)
            try:
                client.delete(place.plural, name, propagation=cascade.capitalize(), namespace=home)
            except IsthmusError as error:
                if not (ignore_not_found and isinstance(error, NotFound)):
                    first = _go_on(first, error)
            else:
                sys.stdout.write(f"{place.kind.lower()}/{name} deleted\n")
    if first is not None:
        raise first


def _go_on(before: IsthmusError | None, error: IsthmusError) -> IsthmusError:
    """What fails for one object does not spare the others, as with kubectl; raises what would fail for all of them."""
    if isinstance(error, Unavailable | Unauthenticated):
        raise error
    if before is not None:
        say(before.message, "31")
    return error


def _targets(
    kind: str | None, names: list[str], filename: list[str] | None, namespace: str | None
) -> list[tuple[Place, str, str | None]]:
    if kind is not None:
        place, wanted = _place(kind, names)
        if not wanted:
            raise Invalid(f"which {place.plural}? name them: isthmus delete {place.kind.lower()} NAME")
        return [(place, name, namespace) for name in wanted]
    if not filename:
        raise Invalid("say what to delete: isthmus delete KIND NAME, or isthmus delete -f FILE")
    found = []
    for obj in _read(filename):
        meta = obj.get("metadata") or {}
        if not meta.get("name"):
            raise Invalid(f"a {obj.get('kind')} in the manifests has no name, so nobody knows which one to delete")
        found.append((place_of(str(obj.get("kind"))), str(meta["name"]), namespace or meta.get("namespace")))
    return found


def _read(filename: list[str] | None) -> list[dict[str, Any]]:
    if not filename:
        raise Invalid("name the manifests with -f FILE")
    return read_manifests(filename)
