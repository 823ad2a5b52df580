"""Names in several jobs that do not exist, reported before any of them is submitted. Jobs may name each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.cli.naming import NamingClient
from isthmus.client.missing_names import names_in
from isthmus.client.sync import Client
from isthmus.errors import Forbidden, NotFound

Object = Mapping[str, Any]


def check_names(client: Client, jobs: Iterable[Object], *, namespace: str | None = None) -> None:
    """Raise NotFound for a name that does not exist, with the one that was probably meant."""
    found = list(jobs)
    together = {str((job.get("metadata") or {}).get("name") or "") for job in found}
    wanted = {
        (kind, name): namespace or (job.get("metadata") or {}).get("namespace")
        for job in found
        for kind, name in names_in(job)
    }
    for (kind, name), home in wanted.items():
        if kind != "jobs" or name not in together:
            _check(NamingClient.at(client.access), kind, name, home)


def check_named(client: Client, names: Iterable[tuple[str, str]]) -> None:
    """Raise NotFound for the first of some kinds and names that does not exist."""
    for kind, name in names:
        _check(NamingClient.at(client.access), kind, name, None)


def _check(client: Client, kind: str, name: str, home: str | None) -> None:
    with client:
        try:
            client.get(kind, name, namespace=home)
        except Forbidden:  # not ours to know: the server decides
            return
        except NotFound as error:
            raise NotFound(f"{error.message}; --force submits the job all the same") from None
