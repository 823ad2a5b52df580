"""Finding the keeper, starting it when there is none, and asking it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import subprocess
import sys
from pathlib import Path

from isthmus._kit import crashpoints
from isthmus._kit.sockets import readable
from isthmus.errors import SiteUnavailable

_HERE = Path(__file__).parent
_CODE = (
    _HERE / "keeper.py",
    _HERE / "supervising.py",
    _HERE / "layout.py",
    _HERE / "processes.py",
    _HERE / "cgroups.py",
    _HERE / "usage.py",
    _HERE / "meter_process.py",
    _HERE / "networking.py",
    _HERE / "entering.py",
    _HERE / "log_limits.py",
    _HERE / "disk_limits.py",
    _HERE / "seccomp.py",
    _HERE.parent / "sampling.py",
    _HERE.parent / "metering.py",
)
_ANSWER_SECONDS = 30.0
_START_SECONDS = 30.0


def code_version() -> str:
    """Changes whenever the code of keeper or supervisor does."""
    hasher = hashlib.sha256()
    for path in _CODE:
        hasher.update(path.read_bytes())
    return hasher.hexdigest()[:12]


class Keeper:
    """The keeper of one root, as its client sees it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._name = f"keeper-{code_version()}"
        self._starting = asyncio.Lock()

    async def ensure(self) -> None:
        """Start a keeper if none answers."""
        if not await self._try("ping"):
            await self._start()

    async def start_run(self, run_id: str) -> str:
        """Have a supervisor started: `started`, `already`, `failed …`, or empty if nobody could say."""
        request = f"start {run_id}"
        answer = await self._try(request)
        if not answer:
            # None there, or it died with our request in its hands: asking twice is safe, the supervisor decides.
            await self._start()
            answer = await self._try(request)
        return answer or ""

    async def lead(self, request: str, body: bytes = b"") -> tuple[str, list[int]]:
        """Have something opened inside a run: the answer, and the descriptors that came with it."""
        for _ in range(2):
            if (connection := await self._connect()) is not None:
                with connection:
                    return await _exchange(connection, request, body)
            await self._start()
        return "", []

    async def _connect(self) -> socket.socket | None:
        """A bare connection, over which descriptors can come; None: there is no keeper."""
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, f"/proc/self/fd/{folder}/{self._name}.sock")
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except OSError as error:
            connection.close()
            raise SiteUnavailable(f"The keeper of {self._root} cannot be reached: {error}.") from error
        finally:
            os.close(folder)
        return connection

    async def stop(self) -> None:
        """Have the keeper leave. Supervisors and their runs go on."""
        await self._try("stop")

    async def _try(self, request: str) -> str | None:
        """Ask; None: there is no keeper. Empty: it was asked, and the answer is lost."""
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{self._name}.sock")
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except OSError as error:
            raise SiteUnavailable(f"The keeper of {self._root} cannot be reached: {error}.") from error
        finally:
            os.close(folder)
        try:
            writer.write(f"{request}\n".encode())
            async with asyncio.timeout(_ANSWER_SECONDS):
                return (await reader.readline()).decode(errors="replace").strip()
        except (OSError, TimeoutError):
            return ""
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _start(self) -> None:
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        async with self._starting:
            while not await self._try("ping"):
                if asyncio.get_running_loop().time() > deadline:
                    raise SiteUnavailable(f"The keeper of {self._root} does not answer; see keeper.log there.")
                await asyncio.to_thread(self._spawn)
                # Another may have the lock and not yet, or no longer, listen.
                await asyncio.sleep(0.005)

    def _spawn(self) -> None:
        # Nothing of our own environment reaches keeper or jobs, but for the tests' wish to crash.
        env = {k: v for k, v in os.environ.items() if k == crashpoints.VARIABLE}
        command = [sys.executable, "-I", "-S", str(_HERE / "keeper.py"), str(self._root), self._name]
        try:
            with (self._root / "keeper.log").open("ab") as log:
                os.fchmod(log.fileno(), 0o600)
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=env,
                    cwd="/",
                    start_new_session=True,
                    timeout=_START_SECONDS,
                    check=False,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SiteUnavailable(f"The keeper of {self._root} could not be started: {error}.") from error
        if done.returncode:
            raise SiteUnavailable(
                f"The keeper of {self._root} could not be started (exit code {done.returncode}); see keeper.log there."
            )


async def _exchange(connection: socket.socket, request: str, body: bytes) -> tuple[str, list[int]]:
    loop = asyncio.get_running_loop()
    found: list[int] = []
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await loop.sock_sendall(connection, f"{request}\n".encode())
            answer, found = await _receive(connection)
            if answer == "ready":
                await loop.sock_sendall(connection, body)
                answer, found = await _receive(connection)
            return answer, found
    except (OSError, TimeoutError) as error:
        return f"failed {str(error) or 'no answer in time'}", []


async def _receive(connection: socket.socket) -> tuple[str, list[int]]:
    """One line, and the descriptors that came with it."""
    await readable(connection)
    data, descriptors, _, _ = socket.recv_fds(connection, 4096, 8)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return data.decode(errors="replace").strip(), list(descriptors)


def stop_keepers(sites: Path) -> None:
    """Have the keepers of all roots below a folder leave; runs go on. One that does not answer leaves by itself."""
    for address in sites.glob("*/keeper-*.sock"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            folder = os.open(address.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                connection.settimeout(2.0)
                connection.connect(f"/proc/self/fd/{folder}/{address.name}")
            finally:
                os.close(folder)
            connection.sendall(b"stop\n")
            connection.recv(16)
