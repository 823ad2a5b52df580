"""The synchronous client: drives the shared flows over the standard library's HTTP.

```python
from isthmus import Client

client = Client()                                   # the server of `isthmus login`, or the one on this machine
job = client.run(["python", "train.py"], cpus=4)    # sends this folder along
for chunk in job.logs(follow=True):
    sys.stdout.buffer.write(chunk)
print(job.wait().exit_code)
```
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import IO, Any, Self, TypeVar, cast

from .answers import read
from .flows import Extract, Flow, Open, Pause, Read, Step, Work
from .handles import JobOperations
from .kubeconfigs import Access
from .operations import HERE, Operations
from .requests import Object, Request
from .resuming import FAILURES, Feed, Item, Walk, finish
from .transport import AnswerStream, Transport

__all__ = ["HERE", "Client", "JobHandle"]

T = TypeVar("T")


class Client(Operations["JobHandle"]):
    """A server, seen by one user. What is not said is found as `client/config.py` says. Threads may share it."""

    def _begin(self, access: Access) -> None:
        super()._begin(access)
        self._transport = Transport(access, self._waiting)

    def _waiting(self) -> None:
        """The server has not begun to answer for some seconds. A program waits; a person wants to know."""

    def _handle(self, job: Object) -> JobHandle:
        return JobHandle(self, job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._transport.close()

    def _drive(self, flow: Flow[T]) -> T:
        return next(self._feed(finish(flow)))

    def _feed(self, feed: Feed[T]) -> Iterator[T]:
        steps, walk = _SyncSteps(self._transport), Walk(feed)
        try:
            while (step := walk.next()) is not None:
                if isinstance(step, Item):
                    yield step.value
                    continue
                try:
                    walk.answered(steps.take(step))
                except FAILURES as error:
                    walk.failed(error)
        finally:
            steps.close()


class JobHandle(JobOperations):
    """A job on a server."""


class _SyncSteps:
    """The steps of one flow, taken; at most one answer is being read along."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._stream: AnswerStream | None = None

    def take(self, step: Step) -> Any:
        match step:
            case Request():
                return self._transport.send(step)
            case Pause():
                return time.sleep(step.seconds)
            case Work():
                return step.do()
            case Open():
                return self._open(step.request).headers
            case Read():
                return self._read(step.within)
            case Extract():
                from .packs import unpack

                found = unpack(cast("IO[bytes]", self._open(step.request)), step.folder, step.below)
                self.close()
                return found

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open(self, request: Request) -> AnswerStream:
        self.close()
        self._stream = stream = self._transport.stream(request)
        if stream.status >= 300:
            read(stream.answer())
        return stream

    def _read(self, within: float | None) -> bytes:
        assert self._stream is not None, "a flow opens before it reads"
        if within is not None:
            self._stream.limit(within)
        chunk = self._stream.read()
        if not chunk:
            self.close()
        return chunk
