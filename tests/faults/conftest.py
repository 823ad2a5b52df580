"""A control plane in this process whose parts fail at will (`testing/planes.py`), and whole servers."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from isthmus.testing import virtual_time
from isthmus.testing.planes import Plane, running_plane
from isthmus.testing.servers import ServerProcess

T = TypeVar("T")


@pytest.fixture
def on_virtual_time() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine on a loop whose time jumps."""
    return virtual_time.on_virtual_time


MakePlane = Callable[..., contextlib.AbstractAsyncContextManager[Plane]]


@pytest.fixture
def plane(tmp_path: Path) -> MakePlane:
    """Makes a running plane: `async with plane(cpus=4) as it:`."""
    return partial(running_plane, tmp_path)


# Whole servers


class Answer(NamedTuple):
    """What came back, whatever it was."""

    code: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def object(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


def ask(
    server: ServerProcess,
    method: str,
    path: str,
    body: bytes | dict[str, Any] | None = None,
    *,
    token: str | None = None,
    **headers: str,
) -> Answer:
    """One raw request. The token is the administrator's unless told otherwise; an empty one sends none."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    token = server.token if token is None else token
    given = {"Authorization": f"Bearer {token}"} if token else {}
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    given["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
    given.update({name.replace("_", "-"): value for name, value in headers.items()})
    try:
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(), dict(answer.getheaders()))
    finally:
        connection.close()


def memory_of(server: ServerProcess) -> float:
    """MB of memory that the server holds now."""
    assert server.process is not None
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
