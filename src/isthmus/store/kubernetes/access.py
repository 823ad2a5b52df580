"""How to reach a cluster: from a kubeconfig, or as a pod from its service account.

Certificates and keys may be files or base64 in the kubeconfig. Tokens may be given, lie in a file that is exchanged
now and then (read again each minute), or come from a program that the kubeconfig names (run again when its
token ends or is refused).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from isthmus._kit.clock import parse_timestamp
from isthmus.errors import Misconfigured

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_READ_AGAIN = 60.0


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
        try:
            process = await asyncio.create_subprocess_exec(
                *words, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise Misconfigured(f"{words[0]}, which the kubeconfig names, cannot be run ({error.strerror})") from None
        said, _ = await process.communicate()
        try:
            status = json.loads(said)["status"]
            ends = status.get("expirationTimestamp")
            return status["token"], parse_timestamp(ends).timestamp() - 30 if ends else float("inf")
        except (ValueError, KeyError, TypeError):
            raise Misconfigured(
                f"{words[0]}, which the kubeconfig names, gave no token (exit {process.returncode}); run it by hand"
            ) from None


@dataclass(frozen=True, slots=True)
class Access:
    """A cluster's address, whom we trust there, and who we are."""

    server: str
    tls: ssl.SSLContext | None
    auth: httpx.Auth | None
    namespace: str = "default"


def access_at(location: str) -> Access:
    """The cluster at a store's location: `kubernetes:PATH[#CONTEXT]` of a kubeconfig; in a pod `kubernetes:https://…`."""
    where = location.partition(":")[2]
    if where.startswith("https://"):
        return as_pod(where)
    path, _, context = where.partition("#")
    if not path:
        raise Misconfigured("which cluster? write --store kubernetes:PATH with the path of a kubeconfig")
    return from_kubeconfig(Path(path).expanduser(), context or None)


def as_pod(server: str, folder: Path = SERVICE_ACCOUNT) -> Access:
    """The cluster that we run in."""
    try:
        tls = ssl.create_default_context(cafile=folder / "ca.crt")
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise Misconfigured(
            f"there is no service account in {folder} ({error.strerror}); outside of a cluster name a kubeconfig: "
            "--store kubernetes:PATH"
        ) from None
    return Access(server, tls, TokenFile(folder / "token"), namespace)


def from_kubeconfig(path: Path, context: str | None = None) -> Access:
    """The cluster and user of a context; the current one unless named."""
    try:
        config = yaml.safe_load(path.read_text())
        name = context or config.get("current-context") or ""
        chosen = _named(config, "contexts", name)["context"]
        cluster = _named(config, "clusters", chosen["cluster"])["cluster"]
        user = _named(config, "users", chosen["user"])["user"] if chosen.get("user") else {}
        server = str(cluster["server"]).rstrip("/")
    except OSError as error:
        raise Misconfigured(f"the kubeconfig {path} cannot be read ({error.strerror}); name another") from None
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise Misconfigured(
            f"{path} is not a kubeconfig ({error!r}); `kubectl config view` shows a whole one"
        ) from None
    tls = _tls(cluster, user, path.parent) if server.startswith("https://") else None
    return Access(server, tls, _auth(user, path.parent), chosen.get("namespace") or "default")


def _named(config: Mapping[str, Any], section: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = next((item for item in config.get(section) or () if item["name"] == name), None)
    if found is None:
        raise Misconfigured(f"the kubeconfig has no {section[:-1]} called {name!r}; see `kubectl config view`")
    return found


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    with ExitStack() as files:
        authority = _file(cluster, "certificate-authority", folder, files)
        try:
            tls = ssl.create_default_context(cafile=authority)
            if cluster.get("insecure-skip-tls-verify"):
                tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
            certificate = _file(user, "client-certificate", folder, files)
            if certificate is not None:
                tls.load_cert_chain(certificate, _file(user, "client-key", folder, files))
        except OSError as error:  # ssl.SSLError is one
            raise Misconfigured(f"a certificate of the kubeconfig cannot be used ({error}); renew it") from None
    return tls


def _file(section: Mapping[str, Any], name: str, folder: Path, files: ExitStack) -> str | None:
    """The path of what is given as a file or as data. Data lies in a file of ours only while it is being read."""
    if data := section.get(f"{name}-data"):
        holder = files.enter_context(tempfile.NamedTemporaryFile())  # noqa: SIM115 - the stack closes it
        try:
            holder.write(base64.b64decode(data))
        except (binascii.Error, ValueError):
            raise Misconfigured(f"{name}-data of the kubeconfig is not base64") from None
        holder.flush()
        return holder.name
    return str(folder / section[name]) if section.get(name) else None


def _auth(user: Mapping[str, Any], folder: Path) -> httpx.Auth | None:
    if user.get("tokenFile"):
        return TokenFile(folder / user["tokenFile"])
    if user.get("token"):
        return Bearer(user["token"])
    if user.get("exec"):
        return Program(user["exec"])
    if user.get("username"):
        return httpx.BasicAuth(user["username"], user.get("password", ""))
    return None
