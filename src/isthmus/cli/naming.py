"""The client of the command line: it says when the server is slow, and what was probably meant by a name.

A name that does not exist is reported with what to do next: what was probably meant, and what lists them all. Only
names that the server shows to whoever asks are looked at, and only in the tenant that was asked about.
"""

from __future__ import annotations

from typing import TypeVar

from isthmus.client.flows import Flow
from isthmus.client.missing_names import MANY, missing
from isthmus.client.places import Place, place_of
from isthmus.client.requests import list_page
from isthmus.client.sync import Client
from isthmus.errors import IsthmusError, NotFound

T = TypeVar("T")


class PatientClient(Client):
    """A client for people, who want to know what they are waiting for."""

    def _waiting(self) -> None:
        from .failures import say

        say(f"{self.url} has not answered yet; still waiting (Ctrl-C ends it)")


class NamingClient(PatientClient):
    """A client for people, who mistype names."""

    def _drive(self, flow: Flow[T]) -> T:
        try:
            return super()._drive(flow)
        except NotFound as error:
            if not error.name or (place := _known(error.kind)) is None:
                raise
            home = error.namespace or None
            message = missing(place, home, error.name, self._names(place, home))
            raise NotFound(message, kind=error.kind, namespace=error.namespace, name=error.name) from None

    def _names(self, place: Place, home: str | None) -> list[str]:
        """What there is, as far as it can be found out quickly."""
        try:
            page = self.ask(list_page(place, home, limit=MANY)._replace(patience=2.0))
        except IsthmusError:
            return []
        return [str(item["metadata"]["name"]) for item in page.get("items") or ()]


def _known(kind: str) -> Place | None:
    """The place of a kind, unless the server has a kind that we do not know."""
    try:
        return place_of(kind)
    except NotFound:
        return None
