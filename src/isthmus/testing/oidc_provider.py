"""An OpenID Connect provider in this process, which a test makes do what no honest one does.

It signs tokens with keys that can be rotated, and answers late or with rubbish.
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

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

CLIENT = "isthmus"


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

        def route(path: str, handler: Any) -> Route:
            async def serve(request: Request) -> Response:
                self.asked.append(path)
                await asyncio.sleep(self.delay)
                if self.answer is not None:
                    return Response(self.answer, media_type="application/json")
                found: Response = await handler(request)
                return found

            return Route(path, serve, methods=["GET"])

        return Starlette(
            routes=[
                route("/.well-known/openid-configuration", self._description),
                route("/jwks", self._keys),
            ]
        )

    async def _description(self, _: Request) -> Response:
        here = self.issuer
        return JSONResponse({"issuer": self.names_itself or here, "jwks_uri": f"{here}/jwks"})

    async def _keys(self, _: Request) -> Response:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return JSONResponse({"keys": [{**public, "kid": self.key_id, "use": "sig", "alg": "RS256"}]})


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
