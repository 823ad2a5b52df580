"""Who a job runs as, and what it sees.

As root, every job runs under its tenant's account, never as root. Otherwise everything runs under our own account.

In the **sandbox** (bubblewrap) a job sees the system's programs and settings, read-only; its own folder at `/job`,
its own `/tmp`, its own processes, the network, and of the devices only those it was given. What is not named is not
there: homes, other runs, the platform's folders. As root, bubblewrap itself is run by root, so that it works where
users may make no namespaces of their own and where the platform's folders are closed to them; `setpriv` then
becomes the tenant before anything of the tenant is read: neither ever sees the job's environment.

Without a sandbox, accounts and folder modes keep tenants apart (as root), or nothing does (otherwise).
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isthmus.engines.base import Account
from isthmus.errors import EngineRefused

from .layout import RunFolder
from .supervising import OPTIONS_FD

JOB_HOME = "/job"
LAUNCH_HOME = "/run/isthmus"
_SYSTEM = ("/usr", "/etc", "/opt", "/sys")
_MAYBE_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Identity:
    """Numbers of an account, and the name a job sees."""

    uid: int
    gid: int
    name: str
    groups: tuple[int, ...] = ()


def resolve(account: Account, *, superuser: bool) -> Identity:
    """Whom a run runs as; raises EngineRefused. May ask the machine's directory service: call it in a thread."""
    if not superuser:
        return Identity(os.getuid(), os.getgid(), _name_of(os.getuid()))
    if account.user is not None:
        try:
            entry = pwd.getpwnam(account.user)
        except KeyError:
            raise EngineRefused(
                f"There is no account {account.user!r} on this machine. Create it, or name another for the tenant."
            ) from None
        found = Identity(entry.pw_uid, entry.pw_gid, entry.pw_name)
    else:
        uid = account.uid or 0
        try:
            entry = pwd.getpwuid(uid)
            found = Identity(uid, entry.pw_gid, entry.pw_name)
        except KeyError:
            found = Identity(uid, uid, f"u{uid}")
    if found.uid == 0 or found.gid == 0:
        raise EngineRefused("Jobs never run as root. Give the tenant an account of its own.")
    return found


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"u{uid}"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The sandbox that this machine allows."""

    bwrap: str
    setpriv: str | None
    """As root: what becomes the tenant."""
    hidden: tuple[Path, ...]
    visible: tuple[Path, ...]

    def options(self, folder: RunFolder, devices: Sequence[str]) -> list[str]:
        """What bubblewrap is told, by a descriptor: the job could read it from bubblewrap's command line."""
        options = ["--unshare-pid", "--unshare-ipc", "--die-with-parent", *self._system()]
        options += ["--bind", str(folder.work), JOB_HOME, "--bind", str(folder.tmp), "/tmp"]  # noqa: S108
        options += ["--ro-bind", str(folder.launch), LAUNCH_HOME, "--chdir", JOB_HOME]
        for place in self.visible:
            # Folders on the way are made passable; bubblewrap by itself would close them as they are outside.
            for parent in reversed(place.parents[:-1]):
                options += ["--perms", "0755", "--dir", str(parent)]
            options += ["--ro-bind-try", str(place), str(place)]
        for place in self.hidden:
            options += ["--tmpfs", str(place)]
        for device in devices:
            options += ["--dev-bind", device, device]
        if self.setpriv is not None:
            options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        return options

    def command(self, identity: Identity) -> list[str]:
        """What to put before a command so that it runs in the sandbox."""
        bwrap = [self.bwrap, "--args", str(OPTIONS_FD), "--"]
        if self.setpriv is None:
            return bwrap
        groups = ["--groups", ",".join(map(str, identity.groups))] if identity.groups else ["--clear-groups"]
        who = ["--reuid", str(identity.uid), "--regid", str(identity.gid), *groups, "--inh-caps=-all"]
        return [*bwrap, self.setpriv, *who, "--"]

    def _system(self) -> list[str]:
        options: list[str] = []
        for place in _SYSTEM:
            options += ["--ro-bind-try", place, place]
        for place in _MAYBE_LINKS:
            path = Path(place)
            if path.is_symlink():
                options += ["--symlink", str(path.readlink()), place]
            elif path.exists():
                options += ["--ro-bind", place, place]
        options += [
            "--dev",
            "/dev",
            "--perms",
            "1777",
            "--tmpfs",
            "/dev/shm",  # noqa: S108
            "--proc",
            "/proc",
            "--perms",
            "0755",
            "--tmpfs",
            "/run",
            "--dir",
            "/var",
        ]
        # Where /etc/resolv.conf points to on many systems; without it there is no name resolution.
        options += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108
        return options


def find_sandbox(root: Path, visible: Sequence[Path], *, superuser: bool) -> tuple[Sandbox | None, str]:
    """The sandbox, tried out; or None and the reason why there is none."""
    bwrap = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    if bwrap is None:
        return None, "bubblewrap is not installed (Debian, Ubuntu: apt install bubblewrap)"
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin") if superuser else None
    if superuser and setpriv is None:
        return None, "setpriv is not installed (Debian, Ubuntu: apt install util-linux)"
    sandbox = Sandbox(bwrap, setpriv, _hidden(root, visible), tuple(visible))
    trial = root / "staging" / "trial"
    folder = RunFolder(trial)
    for part in (folder.work, folder.tmp, folder.launch):
        part.mkdir(parents=True, exist_ok=True)
    command = [sandbox.bwrap, *sandbox.options(folder, ()), "--"]
    command += sandbox.command(Identity(_NOBODY, _NOBODY, "nobody"))[4:]
    try:
        done = subprocess.run(
            [*command, "/bin/sh", "-c", "exit 7"], env={}, cwd="/", capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"bubblewrap does not work here: {error}"
    if done.returncode != 7:
        why = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        return None, f"bubblewrap does not work here: {why}"
    return sandbox, ""


def _hidden(root: Path, visible: Sequence[Path]) -> tuple[Path, ...]:
    """The platform's own folders, where they lie inside one that jobs see."""
    shown = [Path(place).resolve() for place in (*_SYSTEM, *_MAYBE_LINKS)] + [folder.resolve() for folder in visible]
    data = root.resolve()
    inside = [folder for folder in (data.parent, data) if any(place in folder.parents for place in shown)]
    return tuple(inside[:1])


def closed_parent(root: Path) -> Path | None:
    """A folder above the root that other accounts may not pass; without a sandbox, jobs could not reach theirs."""
    return next((folder for folder in root.resolve().parents if not folder.stat().st_mode & 0o001), None)
