"""`isthmus port-forward`: a port of a running job, on this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.failures import say, say_error
from isthmus.cli.options import JobName, Namespace, Token, Url, client_for
from isthmus.client.kubeconfigs import Access
from isthmus.errors import Invalid, IsthmusError, Misconfigured, PortClosed

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection


def ports_of(text: str) -> tuple[int, int]:
    """`LOCAL:REMOTE`, `REMOTE`, or `:REMOTE` for any free port here."""
    local, colon, remote = text.rpartition(":")
    parts = [local if colon else remote, remote]
    if colon and not local:
        parts[0] = "0"
    if not all(part.isascii() and part.isdigit() and len(part) <= 5 and int(part) <= 65535 for part in parts):
        raise Invalid(
            f"{text!r} is not a pair of ports; write it like 8080:80, or 8888 for the same port on both sides"
        )
    if not int(parts[1]):
        raise Invalid("the port of the job must be from 1 to 65535")
    return int(parts[0]), int(parts[1])


def port_forward(
    name: JobName,
    ports: Annotated[str, typer.Argument(metavar="[LOCAL:]REMOTE", help="Port here, and port of the job.")],
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Lead a port of this machine to a port of a running job of yours, until interrupted.

    The program may listen on the job's loopback alone. LOCAL may be left out (the same number), or empty (any free
    port). Only this machine can connect, but every account of it.

    \b
    Examples:
      isthmus port-forward notebook-x7k2p 8888
      isthmus port-forward train-x7k2p 16006:6006
    """
    local, remote = ports_of(ports)
    with client_for(url, token, namespace) as client:
        client.job(name)  # a name that is wrong is explained
        access, tenant = client.access, namespace or client.namespace()
    asyncio.run(_serve(access, tenant, name, local, remote))


async def _serve(access: Access, tenant: str, job: str, local: int, remote: int) -> None:
    from isthmus.client.job_sockets import open_visit

    query = [("port", str(remote))]
    try:
        await (await open_visit(access, tenant, job, "portforward", query)).close()
    except PortClosed:
        say(f"nothing listens on port {remote} of job {job} yet; connections work as soon as something does")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = await open_visit(access, tenant, job, "portforward", query)
        except IsthmusError as error:
            say_error(error.message)
        else:
            async with connection:
                await _relay(connection, reader, writer)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(connected, "127.0.0.1", local)
    except OSError as error:
        raise Misconfigured(f"port {local} of this machine cannot be used ({error.strerror}); choose another") from None
    port = server.sockets[0].getsockname()[1]
    typer.echo(f"127.0.0.1:{port} leads to port {remote} of job {job}; Ctrl-C ends it")
    async with server:
        await server.serve_forever()


async def _relay(connection: ClientConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    from websockets.exceptions import ConnectionClosed

    from isthmus.client.job_sockets import PIECE

    async def inward() -> None:
        while data := await reader.read(PIECE):
            await connection.send(data)
        await connection.send(b"")

    sending = asyncio.create_task(inward())
    try:
        while data := await connection.recv():
            assert isinstance(data, bytes)
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (ConnectionClosed, OSError):
        writer.transport.abort()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
