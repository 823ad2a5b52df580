"""Who we are to an API server: a token that is given, that lies in a file, or that a program gives.

A token in a file is exchanged by others now and then: it is read again each minute. A program that the kubeconfig
names is run again when its token ends. Both are asked at once for a new token when the server refuses the old one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import httpx

from isthmus._kit.children import Children
from isthmus._kit.clock import parse_timestamp
from isthmus.errors import Misconfigured

_READ_AGAIN = 60.0
_PROGRAM_SECONDS = 60.0


class Bearer(httpx.Auth):
    """A token that never changes."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Add the token; when it is refused, try once with a new one, if there may be one."""
        token = await self.token()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401 and (renewed := await self.token(refused=token)) != token:
            request.headers["Authorization"] = f"Bearer {renewed}"
            yield request

    async def token(self, refused: str | None = None) -> str:
        """The token to present now."""
        return self._token

    async def headers(self) -> dict[str, str]:
        """For connections that httpx does not make."""
        return {"Authorization": f"Bearer {await self.token()}"}


class TokenFile(Bearer):
    """A token in a file that others exchange."""

    def __init__(self, path: Path) -> None:
        super().__init__("")
        self._path, self._read_at = path, 0.0

    async def token(self, refused: str | None = None) -> str:
        """Read again when it is old or refused."""
        if refused is not None or not self._token or time.monotonic() - self._read_at > _READ_AGAIN:
            try:
                self._token, self._read_at = self._path.read_text().strip(), time.monotonic()
            except OSError as error:
                raise Misconfigured(f"the token file {self._path} cannot be read ({error.strerror})") from None
        return self._token


class Program(Bearer):
    """A token from the program that the kubeconfig names (`users[].user.exec`)."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        super().__init__("")
        self._wanted, self._until = wanted, 0.0
        self._turn = asyncio.Lock()

    async def token(self, refused: str | None = None) -> str:
        """Ask the program when there is no token, or it ended, or it was refused."""
        async with self._turn:
            if not self._token or time.time() > self._until or refused == self._token:
                self._token, self._until = await self._ask()
            return self._token

    async def _ask(self) -> tuple[str, float]:
        words = [str(self._wanted["command"]), *map(str, self._wanted.get("args") or ())]
        given = {str(item["name"]): str(item["value"]) for item in self._wanted.get("env") or ()}
        version = self._wanted.get("apiVersion", "client.authentication.k8s.io/v1")
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        said, code = await _run(words, environment)
        try:
            status = json.loads(said)["status"]
            ends = status.get("expirationTimestamp")
            return status["token"], parse_timestamp(ends).timestamp() - 30 if ends else float("inf")
        except (ValueError, KeyError, TypeError):
            raise Misconfigured(
                f"{words[0]}, which the kubeconfig names, gave no token (exit {code}); run it by hand"
            ) from None


async def _run(words: list[str], environment: Mapping[str, str]) -> tuple[bytes, int | None]:
    children = Children(1, "kubernetes-credentials")
    try:
        ended = await children.run(words, env=environment, cwd=str(Path.cwd()), seconds=_PROGRAM_SECONDS)
    except TimeoutError:
        raise Misconfigured(f"{words[0]}, which the kubeconfig names, does not end; run it by hand") from None
    except OSError as error:
        raise Misconfigured(f"{words[0]}, which the kubeconfig names, cannot be run ({error.strerror})") from None
    finally:
        children.close()
    return ended.out, ended.code


class Password(Bearer):
    """A name and a password, for the proxies that some put before their API server."""

    def __init__(self, name: str, password: str) -> None:
        super().__init__("")
        self._shown = base64.b64encode(f"{name}:{password}".encode()).decode()

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Add them."""
        request.headers.update(await self.headers())
        yield request

    async def headers(self) -> dict[str, str]:
        """For connections that httpx does not make."""
        return {"Authorization": f"Basic {self._shown}"}


def credentials_of(user: Mapping[str, Any], folder: Path) -> Bearer | None:
    """What a user of a kubeconfig presents; None if a certificate is all."""
    if user.get("tokenFile"):
        return TokenFile(folder / user["tokenFile"])
    if user.get("token"):
        return Bearer(user["token"])
    if user.get("exec"):
        return Program(user["exec"])
    if user.get("username"):
        return Password(user["username"], user.get("password", ""))
    if user.get("auth-provider"):
        raise Misconfigured("the kubeconfig signs in by an auth-provider, which no longer exists; use exec or a token")
    return None
