"""Call: one request for a target, with who sends it. What reading, watching and writing share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import orjson
from starlette.types import Receive, Scope, Send

from isthmus.api.context import Context
from isthmus.api.requests import read_all
from isthmus.identity.authorizing import visible_tenants
from isthmus.identity.callers import Caller
from isthmus.resources.frame.redacting import REDACTED, redacted
from isthmus.resources.frame.selectors import Requirement, Selector
from isthmus.resources.kinds import KINDS
from isthmus.store.base import Query, Record

from .options import ListOptions
from .tables import Form, form_of
from .targets import Target

P = ParamSpec("P")
T = TypeVar("T")
_SMALL = 64 * 2**10
"""Bytes of a body that is dealt with in a few milliseconds."""


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
        limits = self.context.limits
        return await read_all(self.scope, self.receive, limits.body_bytes, limits.body_seconds)

    async def apart(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function makes of the body: here if that is small, else in a thread of its own."""
        length = self.header(b"content-length")
        if length.isdigit() and len(length) < 9 and int(length) <= _SMALL:
            return function(*args, **kwargs)
        return await self.context.work.run(self.caller.token or self.caller.user, function, *args, **kwargs)

    @property
    def convert(self) -> Callable[[Record], Record] | None:
        """What becomes of a record before it is sent: a view of it, or what everybody may see of it. Mostly nothing."""
        view = self.target.view
        if view.kind.name in REDACTED and not self.caller.is_platform_admin:
            return _redacted
        return view.convert

    def query(self, options: ListOptions) -> Query:
        """What a list or watch asks the store, cut down to what the caller may know of."""
        target, fields = self.target, options.fields
        if target.view.stored.name == "Tenant" and (names := visible_tenants(self.caller)) is not None:
            # The empty name stands for nobody, where there are none.
            mine = Requirement("metadata.name", "in", names or frozenset({""}))
            fields = Selector((*fields.requirements, mine))
        return Query(target.view.stored, target.namespace or None, options.labels, fields)


def _redacted(record: Record) -> Record:
    shown = redacted(KINDS[record.key.kind], record.obj)
    return Record(record.key, record.uid, record.version, orjson.dumps(shown))
