"""Ways into a job that runs, as a program takes them: WebSockets to the server, with the token in the head."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import quote, urlencode, urlsplit

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus

from isthmus.errors import Unreachable

from .answers import Answer, read
from .kubeconfigs import Access
from .requests import headers_of

PIECE = 64 * 1024
_LARGEST = 2**20
CONNECT_SECONDS = 30.0


async def open_visit(
    access: Access, namespace: str, job: str, part: str, query: list[tuple[str, str]]
) -> ClientConnection:
    """A WebSocket to a part of a job; raises what the server's refusal stands for, or Unreachable."""
    parts = urlsplit(access.url)
    secure = parts.scheme == "https"
    base = f"{'wss' if secure else 'ws'}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    path = f"/apis/isthmus.dev/v1/namespaces/{quote(namespace, safe='')}/jobs/{quote(job, safe='')}/{part}"
    try:
        return await connect(
            f"{base}{path}?{urlencode(query)}",
            additional_headers=headers_of(await _renewed(access)),
            user_agent_header=None,
            ssl=_trusting(access) if secure else None,
            compression=None,
            max_size=_LARGEST,
            max_queue=4,
            ping_interval=20,
            ping_timeout=60,
            open_timeout=CONNECT_SECONDS,
            proxy=None,
        )
    except InvalidStatus as refused:
        answer = refused.response
        headers = {name.lower(): value for name, value in answer.headers.raw_items()}
        read(Answer(answer.status_code, headers, bytes(answer.body or b"")))
        raise Unreachable(f"{access.url} answered {answer.status_code} to a WebSocket") from None
    except (OSError, InvalidHandshake) as error:
        raise Unreachable(f"{access.url} cannot be reached: {str(error) or 'no answer in time'}") from None


async def _renewed(access: Access) -> Access:
    """With a token that is good now."""
    if access.sign_in is None:
        return access
    from .oidc.sign_ins import current

    return await asyncio.to_thread(current, access)


def resized(rows: int, columns: int) -> bytes:
    """The message that says how large the terminal is now."""
    return b"\x04" + orjson.dumps({"rows": rows, "columns": columns})


def _trusting(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if access.ca:
        context.load_verify_locations(cadata=access.ca.decode())
    return context
