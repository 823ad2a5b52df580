"""Where images are unpacked at a site: below its folder, by each person for themselves.

```
<folder>/images/<account>/    belongs to the account, and nobody else may enter it (see `images/roots`)
```

What unpacks is run as the person: here, where the folder is on this machine, or on the login node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Protocol

from isthmus._kit.crashpoints import step, step_async
from isthmus.engines.slurm.transports.command_line import account
from isthmus.engines.slurm.transports.ssh import SshConnections
from isthmus.errors import SiteUnavailable
from isthmus.images.carrying import (
    MOST_ANSWER,
    ImageStream,
    KeptRoot,
    RootPlan,
    answered,
    boot,
    command,
    folder_name,
    parse_record,
)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_AT_ONCE = 2
"""Images sent at the same time: more would only make each of them slower."""
# Fixed; what varies comes as arguments.
_TOP = 'umask 077; test -d "$1" || { mkdir -- "$1-$$" && chmod 1777 -- "$1-$$" && mv -T -- "$1-$$" "$1"; }'
_OWN = 'umask 077; mkdir -p -- "$1" && test -O "$1"'
_RECORD = 'test -r "$1" && touch -- "$1" && head -c "$2" "$1"'


class ImageStore(Protocol):
    """Images at a site. Every call raises SiteUnavailable where it cannot be reached."""

    def close(self) -> None:
        """Let go."""
        ...

    async def find(self, user: str, digest: str) -> KeptRoot | None:
        """An image of a person that is there, which counts as used now."""
        ...

    async def make(self, user: str, plan: RootPlan) -> KeptRoot:
        """Unpack an image; raises EngineRefused for one that cannot be used."""
        ...

    def folder(self, user: str) -> str:
        """The person's own."""
        ...

    async def open_folder(self, user: str) -> str:
        """The person's own, made if it is not there."""
        ...


def _root(folder: str, digest: str) -> str:
    return f"{folder}/roots/{folder_name(digest)}/root"


class SharedStore:
    """On a file system of this machine."""

    def __init__(self, folder: str) -> None:
        self._top = f"{folder}/images"
        self._superuser = os.geteuid() == 0
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="slurm-images")

    def close(self) -> None:
        """What is being unpacked is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def folder(self, user: str) -> str:
        """The person's own."""
        return f"{self._top}/{user}"

    async def open_folder(self, user: str) -> str:
        """Made by root, or by the person."""
        await asyncio.to_thread(self._open_folder, user)
        return self.folder(user)

    def _open_folder(self, user: str) -> None:
        try:
            self._ready(user)
            if not self._superuser:
                Path(self.folder(user)).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SiteUnavailable(f"The folder {self.folder(user)} cannot be made: {error}.") from error

    async def find(self, user: str, digest: str) -> KeptRoot | None:
        """Read what is known of it."""
        return await asyncio.to_thread(self._find, user, digest)

    def _find(self, user: str, digest: str) -> KeptRoot | None:
        # Step by step and following no link: below their folder it is the person who decides what there is.
        fds: list[int] = []
        try:
            fds.append(os.open(self._top, _FOLDER))
            for name in (user, "roots", folder_name(digest)):
                fds.append(os.open(name, _FOLDER, dir_fd=fds[-1]))
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fds.append(os.open("image.json", flags, dir_fd=fds[-1]))
            found = parse_record(os.read(fds[-1], MOST_ANSWER).decode(errors="replace"))
            os.utime("image.json", dir_fd=fds[-2], follow_symlinks=False)
        except OSError:  # whatever is there is not it: it is unpacked, or that says why not
            return None
        finally:
            for fd in fds:
                os.close(fd)
        if found is None or found[0] != digest:
            return None
        return KeptRoot(digest, _root(self.folder(user), digest), found[1])

    async def make(self, user: str, plan: RootPlan) -> KeptRoot:
        """Run the program as the person."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._make, user, plan)

    def _make(self, user: str, plan: RootPlan) -> KeptRoot:
        try:
            become = self._ready(user)
            words = [sys.executable, "-S", "-m", "isthmus.images.roots"]
            env = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
            stream = ImageStream(replace(plan, become=become).line(), plan.image)
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
                child = subprocess.Popen(words, env=env, cwd="/", stdin=subprocess.PIPE, stdout=out, stderr=err)
                assert child.stdin is not None
                try:
                    _feed(stream.read, child.stdin)
                except BaseException:
                    child.kill()
                    raise
                finally:
                    code = child.wait()
                return answered(code, _said(out), _said(err), plan)
        except OSError as error:
            raise SiteUnavailable(
                f"The image {plan.name} could not be unpacked: {error}. It is tried again."
            ) from error

    def _ready(self, user: str) -> tuple[int, int, tuple[int, ...]] | None:
        """The folder above the person's own, and that one where only root can make it; whom to become."""
        top = Path(self._top)
        if not top.is_dir():
            step(os.makedirs, self._top, 0o711, exist_ok=True)
            step(os.chmod, self._top, 0o711)
        if not self._superuser:
            return None
        entry = account(user)
        with contextlib.suppress(FileExistsError):
            # Renamed into place, so that it is never somebody else's. Not by our number: in a container a server that
            # was killed here has the same one again, and would find its name taken.
            new = f"{self._top}/.{user}-{secrets.token_hex(6)}"
            step(os.mkdir, new, 0o700)
            step(os.chown, new, entry.pw_uid, entry.pw_gid)
            if os.path.lexists(self.folder(user)):
                step(os.rmdir, new)
            else:
                step(os.rename, new, self.folder(user))
        return entry.pw_uid, entry.pw_gid, tuple(os.getgrouplist(user, entry.pw_gid))


class RemoteStore:
    """On the login node, over SSH."""

    def __init__(self, folder: str, ssh: SshConnections) -> None:
        self._top, self._ssh = f"{folder}/images", ssh
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    def close(self) -> None:
        """Nothing of its own."""

    def folder(self, user: str) -> str:
        """The person's own."""
        return f"{self._top}/{user}"

    async def open_folder(self, user: str) -> str:
        """Made by the person, below one in which everybody may make their own."""
        for line, place, who in ((_TOP, self._top, None), (_OWN, self.folder(user), user)):
            made = await step_async(self._ssh.call, line, place, user=who)
            if made.code:
                raise SiteUnavailable(f"The site's folder {place} cannot be made: {made.err.strip()[:300]}.")
        return self.folder(user)

    async def find(self, user: str, digest: str) -> KeptRoot | None:
        """Read what is known of it."""
        record = f"{self.folder(user)}/roots/{folder_name(digest)}/image.json"
        done = await self._ssh.call(_RECORD, record, str(MOST_ANSWER), user=user)
        found = parse_record(done.out) if done.code == 0 else None
        if found is None or found[0] != digest:
            return None
        return KeptRoot(digest, _root(self.folder(user), digest), found[1])

    async def make(self, user: str, plan: RootPlan) -> KeptRoot:
        """Send the program and the layers, and run it as the person."""
        async with self._at_once:
            made = await step_async(self._ssh.call, _TOP, self._top, user=None)
            if made.code:
                raise SiteUnavailable(f"The site's folder {self._top} cannot be made: {made.err.strip()[:300]}.")
            stream = ImageStream(boot() + plan.line(), plan.image)
            done = await step_async(self._ssh.send, command(), user=user, stdin=stream)
            return answered(done.code, done.out, done.err, plan)


def _feed(read: Callable[[int], bytes], pipe: IO[bytes]) -> None:
    """Everything, or as much as is wanted: a program that refuses an image ends before it has read all of it."""
    with contextlib.suppress(BrokenPipeError):
        while piece := read(1 << 20):
            pipe.write(piece)
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


def _said(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_ANSWER).decode(errors="replace")
