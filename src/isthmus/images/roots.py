"""The unpacked images of one person at a site: a program that is run there, as that person. Standard library only.

```
<folder>/               of the person alone
  roots/<digest>/       root/ is what programs see, image.json what is known of it; last used when that was touched
  locks/<digest>        held while it is being unpacked
  staging/<digest>-…/   being unpacked, or removed
```

What to do comes as one line of JSON on standard input, and behind it the layers, one after the other, as they were
fetched: nothing but the unpacked files is ever written. It is unpacked under another name and renamed when it is whole,
so that whoever is killed leaves it there or not; what was left in `staging` goes when the next image comes. Two who
unpack the same wait for each other; a lock is the kernel's, and goes with its holder. Where the file system has no
locks, or one is held for too long, both unpack, and the second one finds it there.

In the root there is a folder or file at the place of everything that runtimes mount, so that none has to make it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import secrets
import shutil
import stat
import sys
import time
from typing import Any, BinaryIO

from .layers import BadLayer, Limits, RootFolder, TooManyBytes
from .unpacking import BAD, FAILED, MOUNTED, apply_layers, sync

FOLDERS = ("dev", "job", "proc", "run", "sys", "tmp", "run/isthmus", "run/libraries")
"""Where runtimes mount what is the machine's or the job's."""
FILES = (*MOUNTED, ("run", ".containerenv"))
_LOCK_SECONDS = 600.0
"""How long another one who unpacks the same is waited for."""
_RESERVE = 10
"""The last part of the free space that an image leaves alone."""


class NotOurs(ValueError):
    """The person's folder is not theirs alone."""


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Be the person from here on, and not whoever started this."""
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)


def keep(plan: dict[str, Any], stream: BinaryIO) -> dict[str, Any]:
    """See to it that an image is there: what is known of it. Raises BadLayer, NotOurs, OSError."""
    folder, digest = plan["folder"], plan["digest"]
    _make_folders(folder)
    held = _lock(f"{folder}/locks/{digest}", _LOCK_SECONDS)
    try:
        record = f"{folder}/roots/{digest}/image.json"
        if not os.path.exists(record):
            _make(plan, stream)
            _tidy(plan)
        os.utime(record)
        with open(record, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
        return found
    finally:
        if held is not None:
            os.close(held)


def _make(plan: dict[str, Any], stream: BinaryIO) -> None:
    folder, digest = plan["folder"], plan["digest"]
    staged = f"{folder}/staging/{digest}-{secrets.token_hex(6)}"
    os.makedirs(f"{staged}/root")
    try:
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        free -= free // _RESERVE
        most = min(plan["limits"]["bytes"], plan["maxBytes"], free)
        root = RootFolder(f"{staged}/root", Limits(**{**plan["limits"], "bytes": most}))
        try:
            apply_layers(root, [(layer, stream) for layer in plan["layers"]])
        except TooManyBytes:
            if most == free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder) from None
            raise
        if not root.has_program("bin/sh"):
            raise BadLayer("it has no /bin/sh, which starts the job's program")
        for name in FOLDERS:
            root.put_folder(name)
        for where, name in FILES:
            root.put_placeholder(where, name)
        record = {**plan["record"], "bytes": root.bytes, "files": root.files}
        with open(f"{staged}/image.json", "w", encoding="utf-8") as file:
            json.dump(record, file)
        sync(staged)
        try:
            os.rename(staged, f"{folder}/roots/{digest}")
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _tidy(plan: dict[str, Any]) -> None:
    """Remove what somebody left who was killed, and what was not used for longest until the rest fits."""
    folder = plan["folder"]
    for name in os.listdir(f"{folder}/staging"):
        digest = name.partition("-")[0]
        held = _lock(f"{folder}/locks/{digest}", 0.0) if digest != plan["digest"] else None
        if held is not None or digest == plan["digest"]:
            shutil.rmtree(f"{folder}/staging/{name}", ignore_errors=True)
        if held is not None:
            os.close(held)
    found = []
    for digest in os.listdir(f"{folder}/roots"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = f"{folder}/roots/{digest}/image.json"
            with open(record, encoding="utf-8") as file:
                found.append((os.stat(record).st_mtime, digest, int(json.load(file)["bytes"])))
    total = sum(size for _, _, size in found)
    for _, digest, size in sorted(found):
        if total <= plan["maxBytes"]:
            return
        if digest == plan["digest"] or digest in plan["inUse"]:
            continue
        gone = f"{folder}/staging/{digest}-{secrets.token_hex(6)}"
        with contextlib.suppress(OSError):
            os.rename(f"{folder}/roots/{digest}", gone)
            shutil.rmtree(gone, ignore_errors=True)
            total -= size


def _make_folders(folder: str) -> None:
    """The folder is the person's, and nobody else may change what is in it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise NotOurs(f"{folder} belongs to somebody else, or others may write to it; have it removed")
    for name in ("roots", "locks", "staging"):
        os.makedirs(f"{folder}/{name}", mode=0o700, exist_ok=True)


def _lock(path: str, seconds: float) -> int | None:
    """A descriptor that holds the lock until it is closed, or the process killed; None: not in this time, or never."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(fd)
                return None
            time.sleep(0.2)
        except OSError:  # a file system without locks
            os.close(fd)
            return None


def main(stdin: BinaryIO | None = None, stdout: io.TextIOBase | None = None) -> int:
    """Carry out what standard input says; the answer is JSON on standard output."""
    stream, out = stdin or sys.stdin.buffer, stdout or sys.stdout
    os.umask(0o022)
    plan = json.loads(stream.readline())
    try:
        if plan.get("become"):
            become(*plan["become"])
        answer, code = keep(plan, stream), 0
    except BadLayer as error:
        answer, code = {"message": str(error)}, BAD
    except NotOurs as error:
        answer, code = {"message": str(error)}, FAILED
    except OSError as error:
        answer, code = {"message": str(error), "errno": error.errno}, FAILED
    json.dump(answer, out)
    out.flush()
    return code


if __name__ == "__main__":
    sys.exit(main())
