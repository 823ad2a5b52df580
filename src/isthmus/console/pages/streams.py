"""What flows: the stream that notifies a page of changes, a job's log, files."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from isthmus.api.requests import require
from isthmus.api.streams import EVENT_STREAM, StreamedAnswer
from isthmus.console.calling import in_tenant
from isthmus.console.live import Topic
from isthmus.console.visits import Visit
from isthmus.errors import Invalid
from isthmus.resources.kinds import kind_named

_MOST_TOPICS = 16


class Forwarded(Response):
    """An answer that the API gives."""

    def __init__(self, visit: Visit, path: str, query: bytes | None = None) -> None:
        self.background = None
        self._visit, self._path, self._query = visit, path, query

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let it answer, until the session ends."""
        until = self._visit.parts.records.while_it_goes_on(self._visit.session.word, receive)
        await self._visit.asker.forward(scope, until, send, self._path, self._query)


class _Live(StreamedAnswer):
    """A stream of ours: its lifeline looks at the token behind the cookie."""

    def __init__(self, visit: Visit, topics: tuple[Topic, ...]) -> None:
        live = visit.parts.live.events(topics, visit.query.get("mark", ""))
        super().__init__(visit.parts.context, visit.caller, live, EVENT_STREAM, {"X-Accel-Buffering": "no"})
        self._session, self._records = visit.session, visit.parts.records

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send, until the browser leaves, or its session or token ends."""
        headers = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
        asked = {**scope, "headers": [*headers, (b"authorization", self._session.header)]}
        await super().__call__(asked, self._records.while_it_goes_on(self._session.word, receive), send)


async def live(visit: Visit) -> Response:
    """Reports that something of `?on=jobs&on=sites&on=jobs/physics/train-7` changed."""
    asked = visit.request.query_params.getlist("on")
    if not 0 < len(asked) <= _MOST_TOPICS:
        raise Invalid("name what the page shows, such as ?on=jobs")
    topics = tuple(_topic(visit, text) for text in asked)
    await visit.parts.live.start()
    return _Live(visit, topics)


def _topic(visit: Visit, text: str) -> Topic:
    parts = text.split("/")
    kind = kind_named(parts[0])
    if not kind.namespaced:
        require(visit.caller, "list" if len(parts) == 1 else "get", kind.plural, "", *parts[1:2])
        return Topic(kind.name, None, *parts[1:2])
    if len(parts) == 1:
        return Topic(kind.name, visit.tenants)
    require(visit.caller, "watch", kind.plural, parts[1])
    return Topic(kind.name, frozenset(parts[1:2]), *parts[2:3])


async def log(visit: Visit) -> Response:
    """A job's output, as the API sends it: text, or events that can be resumed."""
    return Forwarded(visit, _job(visit.request, "log"))


async def metrics(visit: Visit) -> Response:
    """What a job uses while it runs."""
    return Forwarded(visit, _job(visit.request, "metrics"))


async def archive(visit: Visit) -> Response:
    """All that a job left."""
    return Forwarded(visit, _job(visit.request, "outputs"), b"archive=tar")


async def file(visit: Visit) -> Response:
    """One file that a job left, as a download."""
    return Forwarded(visit, _job(visit.request, "outputs", visit.request.path_params["path"]), b"")


def _job(request: Request, *rest: str) -> str:
    return in_tenant(request.path_params["namespace"], "jobs", request.path_params["name"], *rest)


PAGES = (
    ("GET", "/live", live),
    ("GET", "/jobs/{namespace}/{name}/log", log),
    ("GET", "/jobs/{namespace}/{name}/metrics", metrics),
    ("GET", "/jobs/{namespace}/{name}/archive", archive),
    ("GET", "/jobs/{namespace}/{name}/download/{path:path}", file),
)
