"""A small server on a real socket that a test can make forget, drop and refuse."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from isthmus.client.kubeconfigs import Access

BASE = "/apis/isthmus.dev/v1/namespaces/lab"


class Dropped(Exception):
    """Close the connection without (the rest of) an answer."""


class FakeServer:
    """Jobs in a dict; `hooks` are asked first and may answer, or raise `Dropped`."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.contents: dict[str, bytes] = {}
        self.trees: list[bytes] = []
        self.log = b""
        self.version = 10
        self.seen: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self.hooks: list[Callable[[str, str, dict[str, str], Handler], bool]] = []
        self.groups = ["isthmus:lab:member"]
        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.httpd.fake = self  # type: ignore[attr-defined]
        self.thread = threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    @property
    def access(self) -> Access:
        return Access(f"http://127.0.0.1:{self.httpd.server_address[1]}", "ist_t_secret", "lab")

    def close(self) -> None:
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join()

    def requests(self, method: str, part: str) -> int:
        return sum(1 for m, path in self.seen if m == method and part in path)

    def put_job(self, job: dict[str, Any], phase: str = "Pending", **status: Any) -> dict[str, Any]:
        self.version += 1
        meta = {"namespace": "lab", "uid": f"uid-{self.version}", **job["metadata"]}
        meta["resourceVersion"] = str(self.version)
        stored = {**job, "metadata": meta, "status": {"phase": phase, **status}}
        self.jobs[meta["name"]] = stored
        return stored


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    @property
    def fake(self) -> FakeServer:
        return self.server.fake  # type: ignore[attr-defined,no-any-return]

    def handle(self) -> None:
        try:
            super().handle()
        except (Dropped, ConnectionError):
            self.close_connection = True

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.fake.seen.append((self.command, self.path))
        self.fake.bodies.append(self.body)
        for hook in self.fake.hooks:
            if hook(self.command, parts.path, query, self):
                return
        self._answer(parts.path, query)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _answer(self, path: str, query: dict[str, str]) -> None:
        fake = self.fake
        if path.endswith("/selfsubjectreviews"):
            self.send_json({"status": {"userInfo": {"username": "ada", "groups": fake.groups}}})
        elif path == f"{BASE}/jobs" and self.command == "POST":
            self._create(json.loads(self.body))
        elif path == f"{BASE}/jobs":
            items = list(fake.jobs.values())
            self.send_json({"items": items, "metadata": {"resourceVersion": str(fake.version)}})
        elif path.endswith("/log"):
            offset = int(query.get("offset", 0))
            self.send_bytes(fake.log[offset:], {"Isthmus-Log-Offset": str(offset)})
        elif path.endswith("/files/missing"):
            asked = json.loads(self.body)["digests"]
            self.send_json({"missing": [d for d in asked if d not in fake.contents]})
        elif path.endswith("/files/pack"):
            self._pack()
        elif path.endswith("/files/tree"):
            fake.trees.append(self.body)
            self.send_json({"tree": "sha256:" + "0" * 64, "count": len(json.loads(self.body)["files"]), "bytes": 1})
        elif path.startswith(f"{BASE}/jobs/"):
            self._one(path.rpartition("/")[2])
        else:
            self.send_status(404, "NotFound", f"no {path}")

    def _create(self, job: dict[str, Any]) -> None:
        if job["metadata"]["name"] in self.fake.jobs:
            self.send_status(409, "AlreadyExists", "taken")
            return
        self.send_json(self.fake.put_job(job), 201)

    def _one(self, name: str) -> None:
        job = self.fake.jobs.get(name)
        if job is None:
            self.send_status(404, "NotFound", f"there is no job {name}")
            return
        if self.command == "PATCH":
            job["spec"] = {**job.get("spec", {}), **json.loads(self.body).get("spec", {})}
        self.send_json(job)

    def _pack(self) -> None:
        import io
        import tarfile

        with tarfile.open(fileobj=io.BytesIO(self.body)) as archive:
            for member in archive:
                file = archive.extractfile(member)
                assert file is not None
                self.fake.contents[member.name] = file.read()
        self.send_json({"stored": 1, "bytes": 1})

    def send_json(self, value: Any, code: int = 200) -> None:
        self.send_bytes(json.dumps(value).encode(), {"Content-Type": "application/json"}, code)

    def send_status(self, code: int, reason: str, message: str, **details: Any) -> None:
        self.send_json({"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}, code)

    def send_bytes(self, data: bytes, headers: dict[str, str] | None = None, code: int = 200) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin_chunks(self, headers: dict[str, str] | None = None) -> None:
        self.send_response(200)
        for name, value in {"Transfer-Encoding": "chunked", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def drop(self) -> None:
        """Close without the end of the answer."""
        self.wfile.flush()
        self.close_connection = True
        raise Dropped


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.close()
