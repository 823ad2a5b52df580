"""Makes a Python environment and becomes a program in it. Its text is run where the job runs, as the job's own user.

Standard library only, and Python 3.9: whatever `python3` is there runs it. In the folder for environments, which
belongs to one person or tenant:

```
ready/<key>           a link to what is complete; last used when it was touched
made/<key>-<mark>/    an environment; environment.json says what is in it, build.log what the installer said
locks/<key>           shared: a job runs in it; alone: it is being made, or removed
```

An environment is made at its final place, because its files name it, and the link comes when everything is on disk:
so it is there whole or not at all. What somebody left who was killed has no link, and nobody's lock: it goes when the
next one is made. Of several who want the same at once, one makes it. The lock stays with the program, so that nothing
is removed that a job runs in. Where the file system has no locks, each makes its own, the first link counts, and
nothing is removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NoReturn

Plan = dict[str, Any]

ABOUT = (
    "import json,platform,sys,sysconfig;print(json.dumps([sys.version.split()[0],sys.implementation.name,"
    "sys.base_prefix,platform.machine(),platform.libc_ver(),sysconfig.get_config_var('SOABI')]))"
)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_DRAWN = " \u00d7\u2570\u2500\u25b6"
"""What uv draws beside its lines."""
_TAIL = 20
"""Lines of the installer that are shown when it fails."""


class CannotMake(Exception):
    """Why there is no environment: a sentence for the person."""


def main(words: list[str]) -> NoReturn:
    """Have the environment of the plan, then be the program."""
    plan, program = json.loads(words[0]), words[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        os.umask(0o077)
        place, held = use(plan)
    except CannotMake as error:
        fail(plan, str(error), 1)
    except OSError as error:
        fail(plan, f"the environment could not be made: {full(error, plan)}", 1)
    os.umask(0o022)
    env = dict(os.environ, VIRTUAL_ENV=place, PATH=f"{place}/bin:{os.environ.get('PATH', os.defpath)}")
    env.pop("PYTHONHOME", None)
    if held is not None:
        os.set_inheritable(held, True)
    for name in ("SIGPIPE", "SIGXFSZ", "SIGTERM"):  # Python ignores some, and what is ignored stays so
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    found = shutil.which(program[0], path=env["PATH"]) if "/" not in program[0] else program[0]
    if not found or not os.path.isfile(found) or not os.access(found, os.X_OK):
        fail(plan, f"{program[0]}: not found, or not executable", 127, missing=True)
    if plan["report"].startswith("&"):
        os.close(int(plan["report"][1:]))
    os.execve(found, program, env)  # noqa: S606 - what the job says


def fail(plan: Plan, why: str, code: int, *, missing: bool = False) -> NoReturn:
    """Say why, in the log and to whoever watches over the run, and end."""
    sys.stderr.write(f"isthmus: {why}\n")
    sys.stderr.flush()
    report: str = plan["report"]
    with contextlib.suppress(OSError):
        if report.startswith("&"):
            os.write(int(report[1:]), b"missing" if missing else f"failed: {why}".encode()[:900])
        else:
            with open(report, "w", encoding="utf-8", errors="replace") as file:
                file.write(f"failed: {why[:900]}\n")
    sys.exit(code)


def full(error: OSError, plan: Plan) -> str:
    """An error of the file system, with what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"there is no space left in {plan['place']}, where environments are kept"
    return str(error)


def use(plan: Plan) -> tuple[str, int | None]:
    """The folder of the environment, and the lock that says that somebody runs in it, or None."""
    python = interpreter(plan)
    key = key_of(plan, about(python))
    top = plan["place"]
    for name in ("ready", "made", "locks"):
        os.makedirs(f"{top}/{name}", exist_ok=True)
    while True:
        lock = locked(f"{top}/locks/{key}", fcntl.LOCK_SH)
        place = found(top, key)
        if place is not None:
            with contextlib.suppress(OSError):
                os.utime(f"{top}/ready/{key}", follow_symlinks=False)
            return place, lock
        if lock is not None:
            os.close(lock)
        lock = locked(f"{top}/locks/{key}", fcntl.LOCK_EX)
        try:
            if found(top, key) is None:
                make(plan, python, key)
                tidy(top, plan["maxBytes"], key)
        finally:
            if lock is not None:
                os.close(lock)


def locked(path: str, kind: int) -> int | None:
    """A descriptor that holds the lock; None where the file system has no locks."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, kind)
    except OSError as error:
        os.close(fd)
        if kind & fcntl.LOCK_NB or error.errno not in _NO_LOCKS:
            raise
        return None
    return fd


def found(top: str, key: str) -> str | None:
    """Where an environment is that is complete."""
    try:
        place = f"{top}/made/{os.path.basename(os.readlink(f'{top}/ready/{key}'))}"
    except OSError:
        return None
    return place if os.path.exists(f"{place}/environment.json") else None


def interpreter(plan: Plan) -> str:
    """The Python that the environment is for."""
    wanted = plan["version"]
    if not wanted:
        return os.path.realpath(sys.executable)
    if sys.version_info[:2] == tuple(int(part) for part in wanted.split(".")):
        return os.path.realpath(sys.executable)
    named = shutil.which(f"python{wanted}")
    if named:
        return os.path.realpath(named)
    here = ".".join(str(part) for part in sys.version_info[:2])
    raise CannotMake(
        f"there is no Python {wanted} here, only {here}; ask for that one, or run in an image such as python:{wanted}"
    )


def about(python: str) -> list[Any]:
    """What packages for a Python depend on."""
    asked = subprocess.run([python, "-I", "-S", "-c", ABOUT], stdout=subprocess.PIPE, check=True)
    said: list[Any] = json.loads(asked.stdout)
    return said


def key_of(plan: Plan, python: list[Any]) -> str:
    """What the environment is known by here: everything that makes it another one, settings of installers too."""
    given = sorted((name, value) for name, value in os.environ.items() if name.startswith(("PIP_", "UV_")))
    parts = [plan["digest"], plan["image"], plan["place"], plan["index"], plan["wheels"], python, given]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def make(plan: Plan, python: str, key: str) -> None:
    """Install everything, and give it its name."""
    top, begun = plan["place"], time.monotonic()
    place = f"{top}/made/{key}-{secrets.token_hex(6)}"
    count = len(plan["requirements"])
    sys.stderr.write(f"isthmus: making the environment ({count} {'line' if count == 1 else 'lines'} of requirements)\n")
    sys.stderr.flush()
    os.mkdir(place)
    try:
        install(plan, python, place)
        size, files = closed(place)
        record = {
            "requirements": plan["requirements"], "python": about(python)[0], "image": plan["image"], "bytes": size,
            "files": files, "seconds": round(time.monotonic() - begun, 1),
        }  # fmt: skip
        with open(f"{place}/environment.json", "w", encoding="utf-8") as file:
            json.dump(record, file)
        os.chmod(place, 0o500)
        sync(place)
        link = f"{top}/ready/.{key}-{secrets.token_hex(6)}"
        os.symlink(f"../made/{os.path.basename(place)}", link)
        if found(top, key) is None:
            os.rename(link, f"{top}/ready/{key}")
        else:  # where there are no locks, another was quicker
            os.unlink(link)
            remove(place)
    except BaseException:
        remove(place)
        raise


def install(plan: Plan, python: str, place: str) -> None:
    """Have uv or pip install the requirements; raises CannotMake with what they said."""
    listed = f"{place}/requirements.txt"
    with open(listed, "w", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in plan["requirements"]))
    env = installer_environment(plan, os.environ)
    uv = shutil.which("uv")
    target = f"{place}/bin/python"
    if uv:
        steps = [[uv, "venv", "--quiet", "--no-project", "--allow-existing", "--python", python, place]]
        steps.append([uv, "pip", "install", "--compile-bytecode", "--python", target, "-r", listed])
    elif works([python, "-I", "-m", "pip", "--python", python, "--version"]):
        steps = [[python, "-I", "-m", "venv", "--without-pip", place]]
        steps.append([python, "-I", "-m", "pip", "--python", target, "install", "-r", listed])
    elif works([python, "-I", "-c", "import ensurepip, venv"]):  # a pip of its own: slower, and larger
        steps = [[python, "-I", "-m", "venv", place], [target, "-I", "-m", "pip", "install", "-r", listed]]
    else:
        raise CannotMake("this Python can install nothing; have uv, python3-pip or python3-venv installed here")
    with open(f"{place}/build.log", "w+b") as log:
        for words in steps:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=place)
            try:
                code = child.wait()
            except BaseException:
                child.kill()
                child.wait()
                raise
            if code:
                raise CannotMake(said(log, plan))


def works(words: list[str]) -> bool:
    """Whether a command ends well."""
    return not subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode


def installer_environment(plan: Plan, env: Mapping[str, str]) -> dict[str, str]:
    """What uv and pip find: where the site has packages, unless the job says otherwise, and no folder of the job's."""
    ours = {"PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "UV_NO_CACHE": "1",
            "UV_LINK_MODE": "copy", "UV_NO_CONFIG": "1"}  # fmt: skip
    if plan["index"]:
        ours.update(PIP_INDEX_URL=plan["index"], UV_DEFAULT_INDEX=plan["index"])
    if plan["wheels"]:
        ours.update(PIP_FIND_LINKS=plan["wheels"], UV_FIND_LINKS=plan["wheels"])
    if plan["wheels"] and not plan["index"]:
        ours.update(PIP_NO_INDEX="1", UV_NO_INDEX="1")
    kept = {name: value for name, value in env.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}
    return {**ours, **kept}


def said(log: BinaryIO, plan: Plan) -> str:
    """Show the last lines of the installer; the one that says what is wrong."""
    log.flush()
    log.seek(max(0, log.tell() - 16384))
    lines = [line.rstrip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    for line in lines[-_TAIL:]:
        sys.stderr.write(f"{line}\n")
    if any("No space left on device" in line for line in lines):
        return full(OSError(errno.ENOSPC, ""), plan)
    reasons = (
        [line for line in lines if line.lstrip(_DRAWN).lower().startswith("error")] or lines or ["it said nothing"]
    )
    text = reasons[-1].strip(_DRAWN)
    return f"the environment could not be made: {text[:400]}"


def closed(place: str) -> tuple[int, int]:
    """Nobody shall install something more: close everything to writers. Bytes on disk, and files."""
    size = files = 0
    for folder, _, names in os.walk(place, topdown=False):
        for name in names:
            info = os.lstat(f"{folder}/{name}")
            size, files = size + info.st_blocks * 512, files + 1
            if stat.S_ISREG(info.st_mode):
                os.chmod(f"{folder}/{name}", 0o555 if info.st_mode & 0o100 else 0o444)
        if folder != place:
            os.chmod(folder, 0o555)  # noqa: S103 - nobody may write
    return size, files


def sync(folder: str) -> None:
    """Have all of it on disk before it has its name."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
    finally:
        os.close(fd)


def tidy(top: str, most: int, keep: str) -> None:
    """Remove what somebody left who was killed, and what was not used for longest until the rest fits."""
    linked = {}
    for key in os.listdir(f"{top}/ready"):
        if key.startswith("."):
            with contextlib.suppress(OSError), alone(top, key[1:].partition("-")[0], keep):
                os.unlink(f"{top}/ready/{key}")
            continue
        place = found(top, key)
        if place is not None:
            linked[key] = place
    for name in os.listdir(f"{top}/made"):
        place = f"{top}/made/{name}"
        if place not in linked.values():
            with contextlib.suppress(OSError), alone(top, name.partition("-")[0], keep):
                remove(place)
    sizes = {}
    for key, place in linked.items():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            sizes[key] = size_of(place)
    total = sum(sizes.values())
    for key in sorted(sizes, key=lambda key: os.lstat(f"{top}/ready/{key}").st_mtime):
        if total <= most:
            return
        if key != keep:
            with contextlib.suppress(OSError), alone(top, key, keep):
                os.unlink(f"{top}/ready/{key}")
                remove(linked[key])
                total -= sizes[key]


def size_of(place: str) -> int:
    """Bytes of an environment, as it was made."""
    with open(f"{place}/environment.json", encoding="utf-8") as file:
        return int(json.load(file)["bytes"])


@contextlib.contextmanager
def alone(top: str, key: str, ours: str) -> Iterator[None]:
    """Nobody runs in it or makes it; raises OSError if somebody does, or there are no locks. Ours is held already."""
    lock = None if key == ours else locked(f"{top}/locks/{key}", fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def remove(place: str) -> None:
    """All of it, though it is closed to writers."""
    with contextlib.suppress(OSError):
        os.chmod(place, 0o700)
    for folder, names, _ in os.walk(place):
        for name in names:
            if not os.path.islink(f"{folder}/{name}"):
                with contextlib.suppress(OSError):
                    os.chmod(f"{folder}/{name}", 0o700)
    shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
