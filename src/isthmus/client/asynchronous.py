"""The asynchronous client: the same methods as `Client`, over httpx.

```python
from isthmus import AsyncClient

async with AsyncClient() as client:
    job = await client.run(["python", "train.py"])
    async for chunk in job.logs(follow=True):
        sys.stdout.buffer.write(chunk)
    print((await job.wait()).exit_code)
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from tempfile import TemporaryFile
from typing import Any, Self, TypeVar

import httpx

from .async_transport import AsyncTransport
from .flows import Extract, Flow, Open, Pause, Read, Step, Work
from .handles import JobOperations
from .kubeconfigs import Access
from .operations import Operations
from .requests import Object, Request
from .resuming import FAILURES, Feed, Item, Walk, finish

T = TypeVar("T")


class AsyncClient(Operations["AsyncJobHandle"]):
    """A server, seen by one user. What is not said is found as `client/config.py` says. Tasks may share it."""

    def _begin(self, access: Access) -> None:
        super()._begin(access)
        self._transport = AsyncTransport(access)

    def _handle(self, job: Object) -> AsyncJobHandle:
        return AsyncJobHandle(self, job)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._transport.close()

    async def _drive(self, flow: Flow[T]) -> T:
        async with aclosing(self._feed(finish(flow))) as found:
            return await anext(found)

    async def _feed(self, feed: Feed[T]) -> AsyncGenerator[T, None]:
        steps, walk = _AsyncSteps(self._transport), Walk(feed)
        try:
            while (step := walk.next()) is not None:
                if isinstance(step, Item):
                    yield step.value
                    continue
                try:
                    walk.answered(await steps.take(step))
                except FAILURES as error:
                    walk.failed(error)
        finally:
            await steps.close()


class AsyncJobHandle(JobOperations):
    """A job on a server."""


class _AsyncSteps:
    """The steps of one flow, taken; at most one answer is being read along."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._stream = AsyncExitStack()
        self._chunks: AsyncIterator[bytes] | None = None

    async def take(self, step: Step) -> Any:
        match step:
            case Request():
                return await self._transport.send(step)
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Work():
                return await asyncio.to_thread(step.do)
            case Open():
                return (await self._open(step.request)).headers
            case Read():
                return await self._read(step.within)
            case Extract():
                return await self._extract(step)

    async def close(self) -> None:
        self._chunks = None
        await self._stream.aclose()

    async def _open(self, request: Request) -> httpx.Response:
        await self.close()
        response = await self._stream.enter_async_context(self._transport.open(request))
        self._chunks = self._transport.chunks(response)
        return response

    async def _read(self, within: float | None) -> bytes:
        assert self._chunks is not None, "a flow opens before it reads"
        async with asyncio.timeout(within):
            chunk = await anext(self._chunks, b"")
        if not chunk:
            await self.close()
        return chunk

    async def _extract(self, step: Extract) -> list[str]:
        """Unpacking reads as it likes, which only a file can offer it here."""
        from .packs import unpack

        await self._open(step.request)
        with TemporaryFile() as file:
            while chunk := await self._read(None):
                await asyncio.to_thread(file.write, chunk)
            file.seek(0)
            return await asyncio.to_thread(unpack, file, step.folder, step.below)
