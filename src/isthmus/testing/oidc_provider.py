"""An OpenID Connect provider in this process, which a test makes do what no honest one does.

It signs tokens with keys that can be rotated, and answers late, with rubbish or not at all. Whoever it
sends somewhere has agreed to everything.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
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
        self.pending = 0
        """How often a device is asked to wait."""
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: set[str] = set()
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

        def route(path: str, handler: Any, *methods: str) -> Route:
            async def serve(request: Request) -> Response:
                self.asked.append(path)
                await asyncio.sleep(self.delay)
                if self.answer is not None:
                    return Response(self.answer, media_type="application/json")
                found: Response = await handler(request)
                return found

            return Route(path, serve, methods=list(methods or ("GET",)))

        return Starlette(
            routes=[
                route("/.well-known/openid-configuration", self._description),
                route("/jwks", self._keys),
                route("/auth", self._authorize),
                route("/token", self._token, "POST"),
                route("/device", self._device, "POST"),
            ]
        )

    async def _description(self, _: Request) -> Response:
        here = self.issuer
        return JSONResponse(
            {
                "issuer": self.names_itself or here,
                "authorization_endpoint": f"{here}/auth",
                "token_endpoint": f"{here}/token",
                "jwks_uri": f"{here}/jwks",
                "device_authorization_endpoint": f"{here}/device",
            }
        )

    async def _keys(self, _: Request) -> Response:
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return JSONResponse({"keys": [{**public, "kid": self.key_id, "use": "sig", "alg": "RS256"}]})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        code = secrets.token_urlsafe(12)
        self._codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}", 303)

    async def _device(self, request: Request) -> Response:
        await request.form()
        code = secrets.token_urlsafe(12)
        self._codes[code] = {}
        where = {"verification_uri": f"{self.issuer}/enter", "expires_in": 60, "interval": 0}
        return JSONResponse({"device_code": code, "user_code": "ABCD-EFGH", **where})

    async def _token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self._refresh:
                return JSONResponse({"error": "invalid_grant"}, 400)
            self._refresh.discard(form["refresh_token"])
            return self._given({})
        device = form["grant_type"].endswith("device_code")
        if device and self.pending > 0:
            self.pending -= 1
            return JSONResponse({"error": "authorization_pending"}, 400)
        asked = self._codes.pop(form["device_code" if device else "code"], None)
        if asked is None:
            return JSONResponse({"error": "invalid_grant"}, 400)
        if "code_challenge" in asked:
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
                return JSONResponse({"error": "invalid_grant"}, 400)
        return self._given({"nonce": asked["nonce"]} if "nonce" in asked else {})

    def _given(self, claims: dict[str, Any]) -> Response:
        again = secrets.token_urlsafe(16)
        self._refresh.add(again)
        return JSONResponse({"id_token": self.token(**claims), "access_token": "opaque", "refresh_token": again})


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
