"""Agents: joining by an invitation, the connection of those that have joined, and a list of them.

Whoever joins has an invitation and no token, and whoever connects proves itself by its key
(`engines/agent/contacts.py`).
"""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.websockets import WebSocket, WebSocketDisconnect

import isthmus
from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus.engines.agent.linking import LinkLost
from isthmus.engines.agent.proving import INVITATION, Proof, is_key, verify
from isthmus.errors import Conflict, Forbidden, NotFound, Unavailable
from isthmus.resources.frame.meta import Model
from isthmus.resources.frame.validation import parse
from isthmus.resources.kinds import SITE
from isthmus.resources.sites import Site
from isthmus.resources.tokens import hash_secret
from isthmus.store.base import Key, Query, Record

from .documents import read_document
from .requests import caller_of, read_body, require
from .responses import json_response

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from isthmus.engines.agent.offers import AgentPackages
    from isthmus.store.base import Store

    from .context import Context

CONNECT, ENROL, LIST = "/agents/connect", "/agents/enrol", "/agents"
INSTALLER, WHEELS, WHEEL = "/agents/install.py", "/agents/wheels", "/agents/wheels/{name}"
HEADER = "Isthmus-Invitation"
_BODY = 16 * 1024
_LONGEST_INVITATION = 500
_INSTALLER = Path(isthmus.__path__[0]) / "agent" / "installer.py"
_REFUSED = "the invitation is unknown, used or expired; ask an administrator for another: isthmus agents invite"


class Enrolment(Model):
    """What a machine that joins says."""

    invitation: str = Field(pattern=r"^isi_[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?_[A-Za-z0-9_-]{20,200}$")
    key: str = Field(max_length=100)
    machine: str = Field(pattern=r"^[0-9a-f]{32}$")
    signature: str = Field(max_length=200)


def routes(context: Context) -> list[BaseRoute]:
    """Joining, and the list."""

    async def enrol(request: Request) -> Response:
        address = (request.scope.get("client") or ("",))[0]
        context.slowing.check(address)
        body = await read_body(request, _BODY, 10.0)
        said = await read_document(body, "application/json", 8)
        enrolment = parse(Enrolment, said, "Enrolment")
        try:
            record = await _enrol(context.store, enrolment)
        except Forbidden:
            await context.slowing.failed(address, enrolment.invitation.partition("_")[2].partition("_")[0])
            raise
        return json_response({"kind": "Enrolment", "site": record.key.name}, 200)

    async def agents(request: Request) -> Response:
        caller = await caller_of(request, context)
        require(caller, "update", "sites", "")
        found = await context.store.list(Query(SITE))
        items = [_item(context, record) for record in found.records if record.obj["spec"].get("driver") == "agent"]
        return json_response({"apiVersion": "isthmus.dev/v1", "kind": "AgentList", "items": items}, 200)

    async def installer(request: Request) -> Response:
        content = await asyncio.to_thread(_INSTALLER.read_bytes)
        return Response(content, media_type="text/x-python")

    async def packages(request: Request) -> AgentPackages:
        if context.wheels is None:
            raise NotFound("this control plane has no packages for agents")
        address = (request.scope.get("client") or ("",))[0]
        context.slowing.check(address)
        said = request.headers.get(HEADER, "")
        if not await _is_invited(context.store, said):
            await context.slowing.failed(address, said[:100])
            raise Forbidden(_REFUSED)
        return await asyncio.to_thread(context.wheels.packages)

    async def wheels(request: Request) -> Response:
        found = await packages(request)
        return json_response({"kind": "AgentPackages", **found.to_json()}, 200)

    async def wheel(request: Request) -> Response:
        found = await packages(request)
        name = request.path_params["name"]
        for one in (found.main, *found.others):
            if one.path.name == name:
                return FileResponse(one.path, media_type="application/zip")
        raise NotFound(f"there is no package {name[:200]!r}")

    return [
        Route(ENROL, enrol, methods=["POST"]),
        Route(LIST, agents, methods=["GET"]),
        Route(INSTALLER, installer, methods=["GET"]),
        Route(WHEELS, wheels, methods=["GET"]),
        Route(WHEEL, wheel, methods=["GET"]),
    ]


async def _is_invited(store: Store, invitation: str) -> bool:
    """Whether an invitation is good. It is not used up: installing comes before joining."""
    name, _, secret = invitation.removeprefix(INVITATION).partition("_")
    if not invitation.startswith(INVITATION) or not secret or len(invitation) > _LONGEST_INVITATION:
        return False
    try:
        site = Site.model_validate((await store.get(Key(SITE.name, "", name))).obj)
    except NotFound:
        return False
    invited = site.spec.agent.invitation if site.spec.agent else None
    return (
        invited is not None
        and hmac.compare_digest(invited.sha256, hash_secret(secret))
        and parse_timestamp(invited.expires_at) > utcnow()
    )


def socket(context: Context, path: str) -> ASGIApp | None:
    """What serves a WebSocket at this path."""
    hub = context.agents
    if path != CONNECT or hub is None:
        return None

    async def connect(scope: Scope, receive: Receive, send: Send) -> None:
        websocket = WebSocket(scope, receive, send)
        await websocket.accept()
        address = (scope.get("client") or ("",))[0]
        await hub.serve(_ServerChannel(websocket), address)

    return connect


class _ServerChannel:
    """The server's side of a WebSocket as a channel."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def send(self, message: bytes) -> None:
        try:
            await self._websocket.send_bytes(message)
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise LinkLost(f"The connection broke: {error}.") from None

    async def receive(self) -> bytes:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise LinkLost("The agent hung up.")
        return message.get("bytes") or (message.get("text") or "").encode()

    async def close(self) -> None:
        await self._websocket.close()


async def _enrol(store: Store, said: Enrolment) -> Record:
    """Give a key its right; raises Forbidden. The invitation is used up in the same write."""
    name, _, secret = said.invitation.removeprefix(INVITATION).partition("_")
    digest = hash_secret(secret)
    proof = Proof(name, said.machine, "join", digest)
    if (
        not said.invitation.startswith(INVITATION)
        or not is_key(said.key)
        or not verify(said.key, proof, said.signature)
    ):
        raise Forbidden(_REFUSED)
    for _ in range(10):
        try:
            record = await store.get(Key(SITE.name, "", name))
        except NotFound:
            raise Forbidden(_REFUSED) from None
        site = Site.model_validate(record.obj)
        agent = site.spec.agent
        if site.spec.driver != "agent" or agent is None:
            raise Forbidden(_REFUSED)
        if agent.key == said.key and agent.machine == said.machine and not agent.revoked:
            return record  # the answer to the first attempt was lost
        invited = agent.invitation
        if invited is None or not hmac.compare_digest(invited.sha256, digest):
            raise Forbidden(_REFUSED)
        if parse_timestamp(invited.expires_at) <= utcnow():
            raise Forbidden(_REFUSED)
        obj = dict(record.obj)
        joined = {"key": said.key, "machine": said.machine, "revoked": False}
        if agent.lost_after is not None:
            joined["lostAfter"] = agent.lost_after
        obj["spec"] = {**record.obj["spec"], "agent": joined}
        try:
            return await store.update(SITE, obj)
        except Conflict:
            continue
    raise Unavailable("the site changes all the time; try again")


def _item(context: Context, record: Record) -> dict[str, Any]:
    site = Site.model_validate(record.obj)
    spec, kept = site.spec.agent, site.status.agent
    live = context.agents.contact(site.name).to_json() if context.agents else {}
    if kept is not None and not live.get("connected"):
        remembered = {"version": kept.version, "address": kept.address, "lastContact": kept.last_contact}
        live = {**live, **{name: live.get(name) or value for name, value in remembered.items()}}
    state = "Connected" if live.get("connected") else "Offline"
    if spec is None or spec.key is None:
        state = "Invited" if spec is not None and spec.invitation is not None else "NotJoined"
    elif spec.revoked:
        state = "Revoked"
    return {"name": site.name, "state": state, **live}
