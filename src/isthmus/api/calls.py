"""Call: one request for a target, with who sends it. What reading, watching and writing share."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from isthmus.identity.authorizing import visible_tenants
from isthmus.identity.callers import Caller
from isthmus.resources.selectors import Requirement, Selector
from isthmus.store.base import Query

from .context import Context
from .options import ListOptions
from .requests import read_all
from .tables import Form, form_of
from .targets import Target


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    context: Context
    scope: Scope
    receive: Receive
    send: Send
    target: Target
    caller: Caller

    @property
    def form(self) -> Form:
        """How the answer shall look."""
        return form_of(self.header(b"accept"))

    @property
    def query_string(self) -> bytes:
        """As it was sent."""
        raw: bytes = self.scope["query_string"]
        return raw

    def header(self, wanted: bytes) -> bytes:
        """The first header of this name, or nothing."""
        for name, value in self.scope["headers"]:
            if name == wanted:
                return bytes(value)
        return b""

    async def body(self) -> bytes:
        """The whole body, within the limit of a manifest."""
        return await read_all(self.scope, self.receive, self.context.limits.body_bytes)

    def query(self, options: ListOptions) -> Query:
        """What a list or watch asks the store, cut down to what the caller may know of."""
        target, fields = self.target, options.fields
        if target.view.stored.name == "Tenant" and (names := visible_tenants(self.caller)) is not None:
            # The empty name stands for nobody, where there are none.
            mine = Requirement("metadata.name", "in", names or frozenset({""}))
            fields = Selector((*fields.requirements, mine))
        return Query(target.view.stored, target.namespace or None, options.labels, fields)
