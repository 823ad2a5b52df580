"""The environments of Python packages that tenants' jobs have made at this site: where, listed, removed.

`root/environments/<tenant>-<number>/` belongs to one tenant for all time; its jobs, and nobody else's, see it and write
to it (`engines/environment_building` says what is in it). What is read here may so be anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isthmus._kit.files import NotRegular, read_regular
from isthmus.engines.base import SiteImage
from isthmus.engines.collecting import remove_tree

from .isolation import AccountIdentity

PREFIX = "environment:"
"""Begins the key by which an environment is removed."""
_KEY = re.compile(r"[0-9a-f]{40}")
_MADE = re.compile(r"[0-9a-f]{40}-[0-9a-f]{12}")
_OWNER = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)-(\d{1,10})")
_MOST_RECORD = 2**20
_MOST_SHOWN = 1000
"""Environments of a tenant that are listed."""


class TenantEnvironments:
    """All of a site."""

    def __init__(self, root: Path, *, superuser: bool) -> None:
        self._top, self._superuser = root / "environments", superuser

    def folder(self, tenant: str, number: int | None, identity: AccountIdentity, *, open_path: bool) -> Path:
        """The folder of a tenant, made if it is not there; whoever was killed meanwhile left a name that starts with .

        `open_path`: there is no sandbox, and the tenant's account must be able to pass through to it.
        """
        found = self._top / f"{tenant}-{number or 0}"
        self._top.mkdir(mode=0o700, exist_ok=True)
        self._top.chmod(0o711 if open_path else 0o700)
        if found.is_dir():
            return found
        draft = self._top / f".{secrets.token_hex(6)}"
        draft.mkdir(mode=0o700)
        if self._superuser:
            os.chown(draft, identity.uid, identity.gid)
        try:
            draft.rename(found)
        except OSError:
            draft.rmdir()
            if not found.is_dir():
                raise
        return found

    def list(self) -> list[SiteImage]:
        """What is kept, as images are listed. Work for a thread."""
        return [image for tenant, folder in self._folders() for image in self._of(tenant, folder)]

    def _folders(self) -> Iterator[tuple[str, Path]]:
        with contextlib.suppress(FileNotFoundError):
            for path in self._top.iterdir():
                if owner := _OWNER.fullmatch(path.name):
                    yield owner[1], path

    def _of(self, tenant: str, folder: Path) -> Iterator[SiteImage]:
        with contextlib.suppress(OSError), _Opened(folder) as opened:
            for name in os.listdir(opened.ready)[:_MOST_SHOWN]:  # noqa: PTH208
                made = opened.made_of(name)
                if made is None:
                    continue
                with opened.entered(made) as inside:
                    record = _record(Path(f"/proc/self/fd/{inside}/environment.json"))
                used = os.stat(name, dir_fd=opened.ready, follow_symlinks=False).st_mtime
                lock = opened.alone(name)
                if lock is not None:
                    os.close(lock)
                key = f"{PREFIX}{folder.name}/{name}"
                title, size = _title(record), record.get("bytes")
                known = size if isinstance(size, int) and 0 <= size < 2**60 else 0
                yield SiteImage(title, f"sha256:{name}", known, used, frozenset({tenant}), True, lock is None, key)

    def remove(self, key: str, tenant: str | None) -> bool:
        """Remove one that no job runs in; False if one does, or it is not the tenant's. Work for a thread."""
        owner, _, name = key.removeprefix(PREFIX).partition("/")
        whose = _OWNER.fullmatch(owner)
        if whose is None or not _KEY.fullmatch(name) or (tenant is not None and tenant != whose[1]):
            return False
        gone = self._top / f".{secrets.token_hex(6)}"
        with _Opened(self._top / owner) as opened:
            lock = opened.alone(name)
            if lock is None:
                return False
            try:
                made = opened.made_of(name)
                os.unlink(name, dir_fd=opened.ready)
                if made is not None:
                    with opened.entered(made) as inside:
                        os.fchmod(inside, 0o700)  # or its owner could not move it
                    os.rename(made, gone, src_dir_fd=opened.made)
            finally:
                os.close(lock)
        remove_tree(gone)
        return True

    def tidy(self) -> None:
        """Remove what somebody left who was killed."""
        with contextlib.suppress(FileNotFoundError):
            for path in self._top.glob(".*"):
                remove_tree(path)


class _Opened:
    """The folders of a tenant's environments, entered step by step: no link that a job put there is followed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, contextlib.ExitStack()

    def __enter__(self) -> _Opened:
        with contextlib.ExitStack() as stack:
            top = _enter(stack, self._folder)
            self.ready, self.made, self._locks = (_enter(stack, name, top) for name in ("ready", "made", "locks"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def made_of(self, name: str) -> str | None:
        """What the folder of an environment is called, by its link."""
        with contextlib.suppress(OSError):
            made = os.readlink(name, dir_fd=self.ready).rpartition("/")[2]
            if _KEY.fullmatch(name) and _MADE.fullmatch(made):
                return made
        return None

    @contextlib.contextmanager
    def entered(self, made: str) -> Iterator[int]:
        """The folder of an environment."""
        with contextlib.ExitStack() as stack:
            yield _enter(stack, made, self.made)

    def alone(self, name: str) -> int | None:
        """The lock of an environment, if nobody has it."""
        with contextlib.suppress(OSError):
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(name, flags, dir_fd=self._locks)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                return None
            return fd
        return None


def _enter(stack: contextlib.ExitStack, name: Path | str, above: int | None = None) -> int:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    stack.callback(os.close, fd)
    return fd


def _record(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_regular(path, _MOST_RECORD))
    except (OSError, NotRegular, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _title(record: dict[str, Any]) -> str:
    """Such as `python 3.11.2: numpy==2.1, scipy`."""
    lines = record.get("requirements")
    shown = [line[:40] for line in lines[:4] if isinstance(line, str)] if isinstance(lines, list) else []
    more = ", …" if isinstance(lines, list) and len(lines) > len(shown) else ""
    title = f"python {str(record.get('python'))[:20]}: {', '.join(shown)}{more}"
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in title)
