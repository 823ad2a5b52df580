"""SSH to the cluster: one connection for each account, kept, with host keys always verified.

sshd refuses more than ten sessions on a connection, by default; ours queue below that instead of failing. Most of them
are shells that are kept (see `shells`); SFTP and what sends files have sessions of their own. A connection that is lost
is made anew by whoever needs it next. What was under way then has no answer, and nothing is concluded.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from isthmus._kit.children import Ready
from isthmus.engines.slurm.settings import SshSettings
from isthmus.errors import Misconfigured, SiteUnavailable

from . import shells
from .commands import Done
from .shells import Shell

if TYPE_CHECKING:
    import asyncssh


CIPHERS = "^aes256-gcm@openssh.com,aes128-gcm@openssh.com"
"""In front of those that are the default: one call of a library for each packet, where ChaCha20 takes several."""
OTHERS = 2
"""Sessions of a connection that are no kept shells: SFTP, and what sends files."""


@dataclass(slots=True)
class _Link:
    """The connection of one account."""

    user: str
    sessions: asyncio.Semaphore
    """Those that are no kept shells."""
    at_once: asyncio.Semaphore
    """Kept shells."""
    ahead: asyncio.Semaphore
    """Kept shells whose commands wait for something."""
    idle: list[Shell] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: asyncssh.SSHClientConnection | None = None
    sftp: asyncssh.SFTPClient | None = None


class SshConnections:
    """Runs commands and moves files on the login node, as any account we have a key for."""

    def __init__(self, settings: SshSettings, seconds: float) -> None:
        try:
            import asyncssh
        except ImportError:
            raise Misconfigured("Sites over SSH need asyncssh. Install it with: pip install 'isthmus[ssh]'") from None
        self._asyncssh = asyncssh
        self._settings, self._seconds = settings, seconds
        self._kept = max(0, settings.sessions - OTHERS)
        self._links: dict[str, _Link] = {}

    @property
    def service(self) -> str:
        """The account that asks for the state of all jobs."""
        return self._settings.user

    async def open(self) -> None:
        """Connect as the site's own account: so that what is wrong is reported at once."""
        await self._connection(self._link(self.service))

    async def close(self) -> None:
        """Close all connections."""
        links, self._links = list(self._links.values()), {}
        for link in links:
            if link.connection is not None:
                link.connection.close()
                with contextlib.suppress(OSError, self._asyncssh.Error):
                    await link.connection.wait_closed()

    async def run(
        self,
        words: Sequence[str],
        *,
        user: str | None,
        stdin: bytes,
        env: Mapping[str, str],
        ready: Ready | None = None,
    ) -> Done:
        """Run a command; exactly these words, whatever is in them."""
        assigned = [f"{name}={value}" for name, value in env.items()]
        command = shlex.join(["env", "-i", *assigned, *words] if assigned else words)
        link = self._link(user or self.service)
        # What has to be ready may need shells too: so only half of them are given to commands that wait for it.
        fits = shells.fits(command, stdin)
        if ready is not None and (not fits or link.ahead.locked()):
            await ready()
            ready = None
        if ready is not None:
            async with link.ahead:
                return await self._in_shell(link, command, stdin, ready)
        if not fits or not self._kept:
            return await self.send(command, user=user, stdin=stdin)
        return await self._in_shell(link, command, stdin)

    async def call(self, text: str, *words: str, user: str | None, stdin: bytes = b"", reads: bool = False) -> Done:
        """Call a text of ours, without line breaks, with words as its arguments; it ends early by `return`.

        With `reads` it reads all of `stdin`, and no more than that.
        """
        command = shells.function(text, words)
        if not shells.fits(command) or not self._kept:
            return await self.send(command, user=user, stdin=stdin)
        return await self._in_shell(self._link(user or self.service), command, stdin, reads=reads)

    async def _in_shell(
        self, link: _Link, command: str, stdin: bytes, ready: Ready | None = None, *, reads: bool = False
    ) -> Done:
        async with link.at_once:
            connection = await self._connection(link)
            shell: Shell | None = None
            try:
                async with asyncio.timeout(self._seconds):
                    shell = await self._take_shell(link, connection)
                    done = await shell.run(command, stdin, ready, reads=reads)
                    link.idle.append(shell)
                    shell = None
                    return done
            except TimeoutError:
                raise SiteUnavailable(f"{self._settings.host} did not answer in time.") from None
            except EOFError:
                raise SiteUnavailable(f"The connection to {self._settings.host} was lost before it answered.") from None
            except (OSError, self._asyncssh.Error) as error:
                self._lost(link, connection)
                raise self._unavailable(error) from error
            finally:
                if shell is not None:
                    shell.close()

    async def _take_shell(self, link: _Link, connection: asyncssh.SSHClientConnection) -> Shell:
        while link.idle:
            if (shell := link.idle.pop()).is_alive:
                return shell
        return Shell(await connection.create_process(shells.START, encoding=None))

    async def send(
        self, command: str, *, user: str | None, stdin: Any = b"", sent: Callable[[int], None] | None = None
    ) -> Done:
        """Run a command in a session of its own; `stdin` may be an open file, of whose pieces `sent` hears."""
        command = f"exec sh -c {shlex.quote(command)}"
        link = self._link(user or self.service)
        async with link.sessions:
            connection = await self._connection(link)
            try:
                async with asyncio.timeout(self._seconds if isinstance(stdin, bytes) else None):
                    process = await connection.create_process(command, encoding=None)
                    try:
                        await _feed(process, stdin, sent)
                        done = await process.communicate()
                        process.close()
                        # Until the other side has closed it too, it counts among the sessions that sshd allows.
                        await process.wait_closed()
                    finally:
                        process.close()
            except TimeoutError:
                raise SiteUnavailable(f"{self._settings.host} did not answer in time.") from None
            except (OSError, self._asyncssh.Error) as error:
                self._lost(link, connection)
                raise self._unavailable(error) from error
            if process.exit_status is None or process.exit_status < 0:
                raise SiteUnavailable(f"The connection to {self._settings.host} was lost before it answered.")
        out, err = done
        return Done(process.exit_status, _text(out), _text(err))

    @contextlib.asynccontextmanager
    async def files(self, user: str):  # type: ignore[no-untyped-def]
        """SFTP as an account; errors of the connection become SiteUnavailable, those of files stay."""
        link = self._link(user)
        connection = await self._connection(link)
        try:
            async with link.lock:
                if link.sftp is None:
                    await link.sessions.acquire()  # for as long as the connection lasts
                    link.sftp = await connection.start_sftp_client()
            yield link.sftp
        except self._asyncssh.SFTPNoSuchFile:
            raise FileNotFoundError from None
        except (self._asyncssh.SFTPNoConnection, self._asyncssh.SFTPConnectionLost, OSError) as error:
            if isinstance(error, FileNotFoundError | FileExistsError):
                raise
            self._lost(link, connection)
            raise self._unavailable(error) from error
        except self._asyncssh.Error as error:
            if not isinstance(error, self._asyncssh.SFTPError):
                self._lost(link, connection)
            raise self._unavailable(error) from error

    def _link(self, user: str) -> _Link:
        if user not in self._links:
            self._links[user] = self._new_link(user)
        return self._links[user]

    def _new_link(self, user: str) -> _Link:
        others, ahead = self._settings.sessions - self._kept, self._kept // 2
        return _Link(user, asyncio.Semaphore(others), asyncio.Semaphore(self._kept), asyncio.Semaphore(ahead))

    def _lost(self, link: _Link, connection: asyncssh.SSHClientConnection) -> None:
        """Forget a connection that no longer works; one that only refused something is kept."""
        if link.connection is connection and connection.is_closed():
            self._links[link.user] = self._new_link(link.user)

    async def _connection(self, link: _Link) -> asyncssh.SSHClientConnection:
        async with link.lock:
            if link.connection is not None and not link.connection.is_closed():
                return link.connection
            if link.sftp is not None:
                link.sftp = None
                link.sessions.release()
            link.connection = await self._connect(link.user)
            return link.connection

    async def _connect(self, user: str) -> asyncssh.SSHClientConnection:
        settings = self._settings
        key = settings.key_file.replace("{user}", user)
        certificate = settings.certificate_file.replace("{user}", user) if settings.certificate_file else None
        if not settings.known_hosts.exists():
            raise Misconfigured(
                f"There is no {settings.known_hosts}. Write the host's key there: ssh-keyscan {settings.host}, checked."
            )
        try:
            return await self._asyncssh.connect(
                settings.host,
                settings.port,
                username=user,
                client_keys=[(key, certificate) if certificate else key],
                known_hosts=str(settings.known_hosts),
                config=None,
                agent_path=None,
                connect_timeout=settings.connect_seconds,
                keepalive_interval=15,
                preferred_auth="publickey",
                encryption_algs=CIPHERS,
            )
        except self._asyncssh.HostKeyNotVerifiable as error:
            raise Misconfigured(
                f"The key of {settings.host} is not the one in {settings.known_hosts}: {error.reason}. "
                "If the host was set up anew, put its new key there."
            ) from None
        except self._asyncssh.PermissionDenied:
            raise Misconfigured(
                f"{settings.host} does not let {user} in with the key {key}. Add its public key to the account."
            ) from None
        except FileNotFoundError as error:
            raise Misconfigured(f"There is no key {error.filename or key} for {user}.") from None
        except (OSError, self._asyncssh.Error, TimeoutError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: BaseException) -> SiteUnavailable:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return SiteUnavailable(
            f"{self._settings.host} cannot be used over SSH: {said}. "
            "Check that it is up, and that slurm.ssh has its host and port."
        )


async def _feed(process: Any, stdin: Any, sent: Callable[[int], None] | None) -> None:
    if isinstance(stdin, bytes):
        if stdin:
            process.stdin.write(stdin)
    else:
        while piece := await asyncio.to_thread(stdin.read, 1 << 18):
            process.stdin.write(piece)
            await process.stdin.drain()
            if sent is not None:
                sent(len(piece))
    process.stdin.write_eof()


def _text(data: object) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else str(data or "")
