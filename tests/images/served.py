"""Registries to test with: Debian's own program, and one that answers as a test wants."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from isthmus.server import certificates
from isthmus.testing.servers import free_port

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""


def trust_in(folder: Path) -> ssl.SSLContext:
    """What trusts the certificates of `certificates.own`."""
    return ssl.create_default_context(cafile=str(folder / "ca.pem"))


class RealRegistry:
    """docker-registry, over TLS."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        certificates.own(folder, "localhost")
        self.trust = trust_in(folder)
        self.host = f"localhost:{free_port()}"
        (folder / "config.yml").write_text(
            f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
            f"http: {{addr: '{self.host}', tls: {{certificate: {folder}/server.pem, key: {folder}/server.key}}}}\n"
        )
        with (folder / "log").open("wb") as log:
            words = ["docker-registry", "serve", str(folder / "config.yml")]
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        self._http = httpx.Client(base_url=f"https://{self.host}/v2/", verify=self.trust)
        deadline = time.monotonic() + 60
        while True:
            try:
                self._http.get("")
                return
            except httpx.TransportError:
                assert time.monotonic() < deadline
                assert self._process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)

    def push(self, name: str, tag: str, blobs: dict[str, bytes], manifest: dict[str, object]) -> None:
        """Put an image there, as `oci_blobs` gives it."""
        for digest, content in blobs.items():
            place = self._http.post(f"{name}/blobs/uploads/").headers["location"]
            sent = self._http.put(f"{place}&digest={digest}", content=content)
            assert sent.status_code == 201, sent.text
        kind = {"Content-Type": str(manifest["mediaType"])}
        sent = self._http.put(f"{name}/manifests/{tag}", content=blobs[str(manifest["digest"])], headers=kind)
        assert sent.status_code == 201, sent.text

    def close(self) -> None:
        self._http.close()
        self._process.terminate()
        self._process.wait(20)


class FakeRegistry:
    """Answers over TLS what `answer` says to a path and the headers; a body that is cut ends the connection."""

    def __init__(self, folder: Path, answer: Callable[[str, dict[str, str]], Answer]) -> None:
        self._tls = certificates.own(folder, "localhost").context
        self.trust = trust_in(folder)
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def __aenter__(self) -> FakeRegistry:
        self._server = await asyncio.start_server(self._serve, "localhost", 0, ssl=self._tls)
        self.host = f"localhost:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        path = head[0].split()[1]
        self.asked.append((path, headers))
        status, more, body = self.answer(path, headers)
        lines = [f"{name}: {value}" for name, value in {"content-length": str(len(body)), **more}.items()]
        writer.write("\r\n".join([f"HTTP/1.1 {status} X", *lines, "connection: close", "", ""]).encode() + body)
        await writer.drain()
        writer.close()
