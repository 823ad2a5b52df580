"""Registries: manifests and layers by HTTPS, as the OCI distribution specification has it.

A registry belongs to somebody else. Certificates are checked, nothing goes over plain HTTP (a redirect neither), every
answer has a limit, and nothing is believed that its digest does not hold. Where a registry asks for a token, one is
fetched from whom it names, and only over HTTPS: an anonymous one, or with `signed_in` one for that account. Credentials
are shown to the registry that they are for, when it asks, and to nobody whom another one names.

A layer is fetched into `<digest>.part`, hashed on the way, and renamed when it is whole and right. What a broken
connection left is not fetched again: the rest is asked for (`Range`).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import fcntl
import hashlib
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from isthmus._kit.quantities import format_bytes
from isthmus.errors import EngineRefused, SiteUnavailable

from .logins import RegistryLogin
from .manifests import (
    MANIFEST_TYPES,
    MOST_DOCUMENT,
    Descriptor,
    ImageIndex,
    ImageManifest,
    bad,
    choose,
    digest_of,
    parse_document,
)
from .references import RegistryReference

_PIECE = 1 << 20
_SECONDS = 60.0
_MOST_REDIRECTS = 5
_MOST_INDEXES = 4
_LOOK_SECONDS = 0.1
_PARAMETER = re.compile(r'([a-z]{1,20})="([^"]{0,2000})"')
_WAIT = (408, 425, 429, 500, 502, 503, 504)


def trusting(authorities: str) -> ssl.SSLContext:
    """What the system trusts, and these authorities (PEM) too; raises ValueError."""
    context = ssl.create_default_context()
    if authorities.strip():
        try:
            context.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, ValueError) as error:
            raise ValueError(f"these are no certificates (PEM): {error}") from None
    return context


class RegistryClient:
    """Asks registries. `tls` replaces the system's trust."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._http = httpx.AsyncClient(
            verify=tls or ssl.create_default_context(), timeout=_SECONDS, follow_redirects=False, trust_env=True
        )
        self._login: RegistryLogin | None = None
        self._headers: dict[tuple[str, str], str] = {}
        """What to authorize requests with, by registry and repository."""

    def signed_in(self, login: RegistryLogin | None) -> RegistryClient:
        """The same, for somebody with an account; what it learns (tokens) is its own."""
        if login is None:
            return self
        other = copy.copy(self)
        other._login, other._headers = login, {}
        return other

    async def close(self) -> None:
        """Let go."""
        await self._http.aclose()

    async def manifest(self, wanted: RegistryReference, architecture: str) -> tuple[str, ImageManifest]:
        """The image for this machine, with its digest; raises EngineRefused and SiteUnavailable."""
        for _ in range(_MOST_INDEXES):
            content = await self._document(wanted, f"manifests/{wanted.version}", ", ".join(MANIFEST_TYPES))
            digest = digest_of(content)
            if wanted.digest not in (None, digest):
                raise bad(f"{wanted.registry} sent another manifest than the one asked for by its digest")
            document = parse_document(content)
            if isinstance(document, ImageManifest):
                return digest, document
            assert isinstance(document, ImageIndex)
            wanted = wanted.at(choose(document, architecture).digest)
        raise bad("its index leads to no manifest")

    async def resolve(self, wanted: RegistryReference) -> str:
        """The digest of what is named: of an index, where there is one, so that it is the same for every machine."""
        content = await self._document(wanted, f"manifests/{wanted.version}", ", ".join(MANIFEST_TYPES))
        parse_document(content)
        return digest_of(content)

    async def config(self, image: RegistryReference, wanted: Descriptor) -> bytes:
        """The config of an image."""
        content = await self._document(image, f"blobs/{wanted.digest}", "*/*")
        if digest_of(content) != wanted.digest:
            raise bad(f"{image.registry} sent another config than its digest says")
        return content

    async def fetch(self, image: RegistryReference, wanted: Descriptor, folder: Path) -> Path:
        """Have a layer in this folder; what is there of it is not fetched again. Raises as `manifest` does."""
        final = folder / wanted.digest.removeprefix("sha256:")
        async with _alone(final.with_name(f"{final.name}.part"), final) as file:
            if file is None:
                return final
            part = _Part(file, wanted)
            resumed = await asyncio.to_thread(part.catch_up)
            if part.missing:
                await self._rest(image, part)
            if part.digest != wanted.digest:
                os.ftruncate(file, 0)
                if resumed:
                    raise SiteUnavailable(f"A layer of {image} was damaged on the way; it is fetched again.")
                raise bad(f"a layer that {image.registry} sent is not what its digest says")
            final.with_name(f"{final.name}.part").rename(final)
        return final

    async def _rest(self, image: RegistryReference, part: _Part) -> None:
        """Fetch what is missing of a layer."""
        begin = part.have
        headers = {"Range": f"bytes={begin}-"} if begin else {}
        async with self._answer(image, f"blobs/{part.wanted.digest}", headers) as answer:
            if begin and answer.status_code != 206:
                await asyncio.to_thread(part.restart)
            waiting = bytearray()
            try:
                async for piece in answer.aiter_raw():
                    waiting += piece
                    if len(waiting) >= _PIECE:
                        await asyncio.to_thread(part.add, bytes(waiting))
                        waiting.clear()
            finally:  # also what came before the connection broke
                await asyncio.to_thread(part.add, bytes(waiting))
        if part.missing:
            raise _away(image, f"it sent {format_bytes(part.have)} of {format_bytes(part.wanted.size)}")

    async def _document(self, image: RegistryReference, path: str, accept: str) -> bytes:
        content = b""
        async with self._answer(image, path, {"Accept": accept}) as answer:
            async for piece in answer.aiter_raw(_PIECE):
                content += piece
                if len(content) > MOST_DOCUMENT:
                    raise bad(f"{image.registry} sent a document of more than {MOST_DOCUMENT} bytes")
        return content

    @asynccontextmanager
    async def _answer(
        self, image: RegistryReference, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """An answer that is one, with its body to be read; raises EngineRefused and SiteUnavailable."""
        url = f"https://{image.host}/v2/{image.repository}/{path}"
        key = (image.host, image.repository)
        try:
            answer = await self._send(url, headers, self._headers.get(key))
            if answer.status_code == 401:
                await answer.aclose()
                self._headers[key] = await self._authorization(image, answer.headers.get("www-authenticate", ""))
                answer = await self._send(url, headers, self._headers[key])
            try:
                _check(image, answer.status_code, self._login_for(image))
                yield answer
            finally:
                await answer.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise _away(image, str(error) or type(error).__name__) from error

    async def _send(self, url: str, headers: Mapping[str, str], authorization: str | None) -> httpx.Response:
        allowed = {"Authorization": authorization} if authorization else {}
        # As it is: a body that is compressed on the way would be counted and hashed as another.
        request = self._http.build_request("GET", url, headers={"Accept-Encoding": "identity", **headers, **allowed})
        for _ in range(_MOST_REDIRECTS):
            if request.url.scheme != "https":
                raise httpx.UnsupportedProtocol("it leads to an address that is not https")
            answer = await self._http.send(request, stream=True)
            if answer.next_request is None:
                return answer
            request = answer.next_request  # without authorization, where it leads to another host
            await answer.aclose()
        raise httpx.TooManyRedirects("it leads from one address to the next without end")

    def _login_for(self, image: RegistryReference) -> RegistryLogin | None:
        """The account, if it is one of this registry."""
        return self._login if self._login is not None and self._login.registry == image.registry else None

    async def _authorization(self, image: RegistryReference, challenge: str) -> str:
        """What the registry asks for: the account itself, or a token from whom it names."""
        found = dict(_PARAMETER.findall(challenge[:4096]))
        realm, login = found.get("realm", ""), self._login_for(image)
        if challenge.lower().startswith("basic ") and login is not None:
            return login.basic
        if not challenge.lower().startswith("bearer ") or not realm.startswith("https://"):
            raise _needs_account(image, login)
        asked = {"scope": f"repository:{image.repository}:pull"} | {k: found[k] for k in ("service",) if k in found}
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": login.basic} if login else {})
        request = self._http.build_request("GET", realm, params=asked, headers=headers)
        answer = await self._http.send(request, stream=True)
        try:
            if answer.status_code in _WAIT:
                raise _away(image, f"its tokens are answered with {answer.status_code}")
            content = b""
            async for piece in answer.aiter_raw(_PIECE):  # what is decompressed on the way has no limit
                content += piece
                if len(content) > MOST_DOCUMENT:
                    break
        finally:
            await answer.aclose()
        token = _token_in(content) if answer.status_code == 200 else None
        if token is None:
            raise _needs_account(image, login)
        return f"Bearer {token}"


class _Part:
    """A layer of which some is here."""

    def __init__(self, file: int, wanted: Descriptor) -> None:
        self._file, self.wanted = file, wanted
        self._hash = hashlib.sha256()
        self.have = 0

    @property
    def missing(self) -> int:
        """Bytes that are not here."""
        return self.wanted.size - self.have

    @property
    def digest(self) -> str:
        """Of what is here."""
        return f"sha256:{self._hash.hexdigest()}"

    def catch_up(self) -> bool:
        """Hash what an earlier attempt left; whether there was any."""
        while piece := os.pread(self._file, _PIECE, self.have):
            self._hash.update(piece)
            self.have += len(piece)
        if self.missing < 0:
            self.restart()
        return self.have > 0

    def restart(self) -> None:
        """Forget what is here."""
        os.ftruncate(self._file, 0)
        self._hash, self.have = hashlib.sha256(), 0

    def add(self, piece: bytes) -> None:
        """Keep what came; raises EngineRefused if it is more than was said."""
        if len(piece) > self.missing:
            raise bad("a layer is longer than its manifest says")
        self._hash.update(piece)
        view = memoryview(piece)
        while view:
            written = os.pwrite(self._file, view, self.have)
            self.have += written
            view = view[written:]


@asynccontextmanager
async def _alone(part: Path, final: Path) -> AsyncIterator[int | None]:
    """The file of a layer that nobody else is fetching; None if it is here already."""
    while True:
        if final.exists():
            yield None
            return
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had the lock may have given the file its true name.
            if part.stat().st_ino == os.fstat(file).st_ino:
                yield file
                return
        except (BlockingIOError, FileNotFoundError):
            await asyncio.sleep(_LOOK_SECONDS)
        finally:
            os.close(file)


def _token_in(content: bytes) -> str | None:
    with contextlib.suppress(ValueError, RecursionError):
        document: Any = json.loads(content)
        found = document.get("token") or document.get("access_token") if isinstance(document, dict) else None
        if isinstance(found, str) and found.isascii() and found.isprintable():
            return found
    return None


def _check(image: RegistryReference, status: int, login: RegistryLogin | None) -> None:
    if status in (200, 206):
        return
    if status in (401, 403):
        raise _needs_account(image, login)
    if status == 404:
        whom = f"for {login.user}" if login else "for everybody"
        raise bad(f"{image.registry} has no {image.repository}:{image.version}, or not {whom}; check its name")
    if status in _WAIT:
        raise _away(image, f"it answers {status}")
    raise bad(f"{image.registry} answers {status} when asked for {image.repository}")


def _needs_account(image: RegistryReference, login: RegistryLogin | None) -> EngineRefused:
    if login is not None:
        return bad(
            f"{image.registry} does not give {image.repository} to {login.user}; check the name of the image, or sign "
            f"in again: isthmus registry login {image.registry}"
        )
    return bad(
        f"{image.registry} gives {image.repository} to nobody without an account, or has no such image; check its "
        f"name, or sign in: isthmus registry login {image.registry}"
    )


def _away(image: RegistryReference, why: str) -> SiteUnavailable:
    return SiteUnavailable(
        f"The registry {image.registry} did not give {image.repository}: {why[:300]}. It is asked again."
    )
