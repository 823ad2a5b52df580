"""Names in a job that do not exist are reported before it is submitted: otherwise it would wait for them for ever.

Only names that are said are looked up, so an ordinary job costs no request more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from isthmus.cli.naming import NamingClient
from isthmus.client.sync import Client
from isthmus.errors import Forbidden, NotFound

Object = Mapping[str, Any]


def names_in(job: Object) -> Iterator[tuple[str, str]]:
    """Kinds and names that a job refers to. Pure."""
    spec = job.get("spec") or {}
    resources = spec.get("resources") or {}
    for site in (spec.get("placement") or {}).get("sites") or ():
        yield "sites", str(site)
    for device in (*(resources.get("devices") or ()), *(resources.get("anyOf") or ())):
        if isinstance(device, Mapping) and device.get("class"):
            yield "deviceclasses", str(device["class"])
    for dependency in spec.get("dependencies") or ():
        if isinstance(dependency, Mapping) and dependency.get("job"):
            yield "jobs", str(dependency["job"])


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
