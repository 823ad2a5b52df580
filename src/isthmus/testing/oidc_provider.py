"""An OpenID Connect provider in this process, which a test makes do what no honest one does.

It signs tokens with keys that can be rotated, gives them by the device flow, and answers late or with rubbish.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

CLIENT = "isthmus"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class TestProvider:
    """A provider, and everything that may be wrong with it."""

    __test__ = False  # its name is no test

    def __init__(self) -> None:
        self.issuer = ""
        self.claims: dict[str, Any] = {"sub": "ada", "email": "ada@example.org", "email_verified": True}
        self.lifetime = 600
        self.answer: bytes | None = None
        """What is answered to everything, in place of the truth."""
        self.delay = 0.0
        self.names_itself = ""
        """The issuer that it claims to be; nothing: the true one."""
        self.asked: list[str] = []
        self.device: dict[str, Any] = {"expires_in": 600, "interval": 1}
        """What its answer to a device adds, or says in place of the truth."""
        self.polls: list[dict[str, Any]] = []
        """What it answers to the next polls; after them, the tokens."""
        self.refresh_tokens: set[str] = set()
        """Those that are good, each of them once."""
        self.forms: list[dict[str, str]] = []
        self._codes: set[str] = set()
        self.key_id, self.key = "", rsa.generate_private_key(65537, 2048)
        self.rotate(self.key)

    def rotate(self, key: rsa.RSAPrivateKey | None = None) -> None:
        """Sign with another key from now on, and forget the old one."""
        self.key_id, self.key = secrets.token_hex(4), key or rsa.generate_private_key(65537, 2048)

    def token(self, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token as it would give it, but for what is said; None takes a claim away."""
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + self.lifetime, **self.claims}
        found = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(found, self.key, "RS256", headers={"kid": self.key_id, **(headers or {})})

    def public_pem(self) -> bytes:
        """The public key, as an attacker would use it for a secret."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def app(self) -> Starlette:
        """What it serves."""

        def route(path: str, handler: Any, method: str = "GET") -> Route:
            async def serve(request: Request) -> Response:
                self.asked.append(path)
                await asyncio.sleep(self.delay)
                if self.answer is not None:
                    return Response(self.answer, media_type="application/json")
                found: Response = await handler(request)
                return found

            return Route(path, serve, methods=[method])

        return Starlette(
            routes=[
                route("/.well-known/openid-configuration", self._description),
                route("/jwks", self._keys),
                route("/device", self._give_code, "POST"),
                route("/token", self._give_tokens, "POST"),
                route("/revoke", self._revoke, "POST"),
            ]
        )

    async def _description(self, _: Request) -> Response:
        here = self.issuer
        found = {"issuer": self.names_itself or here, "jwks_uri": f"{here}/jwks", "token_endpoint": f"{here}/token"}
        found |= {"device_authorization_endpoint": f"{here}/device", "revocation_endpoint": f"{here}/revoke"}
        return JSONResponse(found)

    async def _keys(self, _: Request) -> Response:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return JSONResponse({"keys": [{**public, "kid": self.key_id, "use": "sig", "alg": "RS256"}]})

    async def _form(self, request: Request) -> dict[str, str]:
        form = dict(parse_qsl((await request.body()).decode()))
        self.forms.append(form)
        return form

    async def _give_code(self, request: Request) -> Response:
        form = await self._form(request)
        if form.get("client_id") != CLIENT or "openid" not in form.get("scope", "").split():
            return JSONResponse({"error": "invalid_client"}, 401)
        code, link = secrets.token_urlsafe(16), f"{self.issuer}/confirm"
        self._codes.add(code)
        usual = {"device_code": code, "user_code": "WDJB-MJHT", "verification_uri": link}
        usual["verification_uri_complete"] = f"{link}?user_code=WDJB-MJHT"
        return JSONResponse({**usual, **self.device})

    async def _give_tokens(self, request: Request) -> Response:
        form = await self._form(request)
        grant = form.get("grant_type")
        if grant == "refresh_token" and form.get("refresh_token") in self.refresh_tokens:
            self.refresh_tokens.remove(form["refresh_token"])
        elif grant == DEVICE_GRANT and form.get("device_code") in self._codes:
            if self.polls:
                return JSONResponse(self.polls.pop(0), 400)
            self._codes.remove(form["device_code"])
        else:
            return JSONResponse({"error": "invalid_grant"}, 400)
        refresh = secrets.token_urlsafe(24)
        self.refresh_tokens.add(refresh)
        found = {"access_token": secrets.token_urlsafe(16), "token_type": "Bearer", "expires_in": self.lifetime}
        return JSONResponse({**found, "id_token": self.token(), "refresh_token": refresh})

    async def _revoke(self, request: Request) -> Response:
        self.refresh_tokens.discard((await self._form(request)).get("token", ""))
        return Response()


@asynccontextmanager
async def running_provider() -> AsyncIterator[TestProvider]:
    """Serve one until the block is left."""
    provider = TestProvider()
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    provider.issuer = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(provider.app(), log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]), name="test provider")
    try:
        async with asyncio.timeout(30):
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
        yield provider
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving
        listener.close()
