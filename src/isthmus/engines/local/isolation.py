"""Who a job runs as, and what it sees.

As root, every job runs under its tenant's account, never as root. Otherwise everything runs under our own account.

In the **sandbox** (bubblewrap) a job sees the system's programs and settings, read-only; its own folder at `/job`,
its own `/tmp`, its own processes, a network of its own (`networking.py`) or what else the site says, and only the
devices it was given. What is not named is not there: homes, other runs, the platform's folders. As root, bubblewrap
itself is run by root, so that it works where users may make no namespaces of their own and where the platform's
folders are closed to them; `setpriv` then becomes the tenant before anything of the tenant is read: neither ever sees
the job's environment.

A job that names an **image** sees its folders in place of the system's (`image_view`). As root, nothing of an image may
run before its job has become the tenant, not even a library: so bubblewrap shows the machine's own programs as always,
with the image at `/image`, and `chroot` of coreutils goes there and becomes the tenant in one.

Without a sandbox, accounts and folder modes keep tenants apart (as root), or nothing does (otherwise): then only the
administrator's own tenant runs jobs, unless the site's settings say otherwise. `SandboxProbe` looks before every job
whether the programs are still those that were tried out, which takes a few microseconds.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from isthmus.engines.base import Account
from isthmus.errors import EngineRefused

from . import keeper, networking, seccomp
from .image_view import image_view
from .layout import RunFolder
from .settings import Network
from .supervising import FILTER_FD, OPTIONS_FD, in_memory

JOB_HOME = "/job"
LAUNCH_HOME = "/run/isthmus"
ENVIRONMENTS_HOME = "/run/environments"
"""Where a job finds the environments of its tenant, if it wants one."""
IMAGE_ROOT = "/image"
"""Where the image lies in the sandbox, as root."""
_SYSTEM = ("/usr", "/etc", "/opt", "/sys")
_MAYBE_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_NOBODY = 65534
PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
"""Where bubblewrap, setpriv and slirp4netns are looked for."""
_NAMES = ("bwrap", "setpriv", "chroot", networking.PROGRAM)
_RESOLV_CONF = Path("/etc/resolv.conf")
HOST, NONE = "host", "none"
# What lets users make namespaces, where bubblewrap is not run by root.
_SWITCHES = (
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
)
OWN_TENANT = "default"
"""The tenant of whoever runs the platform: its jobs run also where nothing can keep tenants apart."""


@dataclass(frozen=True, slots=True)
class AccountIdentity:
    """Numbers of an account, and the name a job sees."""

    uid: int
    gid: int
    name: str
    groups: tuple[int, ...] = ()


def resolve(account: Account, *, superuser: bool) -> AccountIdentity:
    """Whom a run runs as; raises EngineRefused. May ask the machine's directory service: call it in a thread."""
    if not superuser:
        return AccountIdentity(os.getuid(), os.getgid(), _name_of(os.getuid()))
    if account.user is not None:
        try:
            entry = pwd.getpwnam(account.user)
        except KeyError:
            raise EngineRefused(
                f"There is no account {account.user!r} on this machine. Create it, or name another for the tenant."
            ) from None
        found = AccountIdentity(entry.pw_uid, entry.pw_gid, entry.pw_name)
    else:
        uid = account.uid or 0
        try:
            entry = pwd.getpwuid(uid)
            found = AccountIdentity(uid, entry.pw_gid, entry.pw_name)
        except KeyError:
            found = AccountIdentity(uid, uid, f"u{uid}")
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
    filtered: bool = False
    """Whether jobs run under the filter of system calls."""
    network: str = NONE
    """The slirp4netns that gives each job a network of its own; HOST: the machine's network; NONE: just a loopback."""
    shared_because: str = ""
    """Why jobs share the machine's network where they should not."""
    resolver: tuple[Path, Path] | None = None
    """A resolv.conf for jobs with a network of their own, and the file that it takes the place of."""
    chroot: str | None = None
    """As root: what goes into an image and becomes the tenant."""
    version: str = ""
    """Of bubblewrap."""

    @property
    def router(self) -> str | None:
        """What the supervisor starts so that the job has a network of its own."""
        return self.network if self.network not in (HOST, NONE) else None

    @property
    def images(self) -> bool:
        """Whether jobs can run in images."""
        return self.setpriv is None or self.chroot is not None

    def options(
        self,
        folder: RunFolder,
        devices: Sequence[str],
        filter_fd: int = FILTER_FD,
        *,
        image: Path | None = None,
        environments: Path | None = None,
    ) -> list[str]:
        """What bubblewrap is given, by a descriptor: the job could read it from bubblewrap's command line."""
        options = ["--unshare-pid", "--unshare-ipc", "--die-with-parent"]
        if image is None or self.setpriv is not None:
            options += self._machine(folder, devices)
        if image is not None:
            at = IMAGE_ROOT if self.setpriv is not None else ""
            options += image_view(image, at, folder, devices, self.visible, self.hidden)
            if self.resolver is not None:
                options += ["--ro-bind", str(self.resolver[0]), f"{at}/etc/resolv.conf"]
        if environments is not None:
            at = IMAGE_ROOT if image is not None and self.setpriv is not None else ""
            options += ["--bind", str(environments), f"{at}{ENVIRONMENTS_HOME}"]
        if self.network == NONE:
            options.append("--unshare-net")
        if self.filtered:
            options += ["--seccomp", str(filter_fd)]
        if self.setpriv is not None:
            options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
            options += ["--cap-add", "CAP_SYS_CHROOT"] if image is not None else []
        return options

    def _machine(self, folder: RunFolder, devices: Sequence[str]) -> list[str]:
        """The machine's own programs and settings, and what is the job's."""
        options = self._system()
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
        if self.resolver is not None:
            options += ["--ro-bind", *map(str, self.resolver)]
        return options

    def command(self, identity: AccountIdentity, *, image: bool = False) -> list[str]:
        """What to put before a command so that it runs in the sandbox."""
        bwrap = [self.bwrap, "--args", str(OPTIONS_FD), "--"]
        if self.setpriv is None:
            return bwrap
        if image:
            assert self.chroot is not None
            # With + before them numbers are not looked up as names, for which libraries of the image would be loaded.
            who = [f"--userspec=+{identity.uid}:+{identity.gid}"]
            who.append(f"--groups={','.join(f'+{number}' for number in identity.groups)}")
            return [*bwrap, self.setpriv, "--inh-caps=-all", "--", self.chroot, *who, IMAGE_ROOT]
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
            # What a process may write there about itself makes it harder to kill when memory is short (oom_score_adj).
            "--remount-ro",
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


def find_sandbox(
    root: Path, visible: Sequence[Path], *, superuser: bool, programs: str = PROGRAMS, network: Network = "Auto"
) -> tuple[Sandbox | None, str]:
    """The sandbox, tried out; or None and the reason why there is none."""
    sandbox, why = _find_without_network(root, visible, superuser=superuser, programs=programs)
    if sandbox is None or network == "None":
        return sandbox, why
    if network == "Host":
        return replace(sandbox, network=HOST), ""
    private, why = _find_network(sandbox, root, programs)
    if private is None and network == "Private":
        return None, f"jobs cannot have a network of their own: {why}"
    return private or replace(sandbox, network=HOST, shared_because=why), ""


def _find_network(sandbox: Sandbox, root: Path, programs: str) -> tuple[Sandbox | None, str]:
    """The sandbox with a network of its own for each job, tried out; or None and the reason."""
    router = shutil.which(networking.PROGRAM, path=programs)
    if router is None:
        return None, f"{networking.PROGRAM} is not installed (Debian, Ubuntu: apt install {networking.PROGRAM})"
    private = replace(sandbox, network=router, resolver=_resolver(root))
    why = _try_out(private, root)
    return (None, f"{networking.PROGRAM} does not work here: {why}") if why else (private, "")


def _resolver(root: Path) -> tuple[Path, Path] | None:
    """What jobs find as resolv.conf, where the machine's names a resolver on the loopback that they do not see."""
    try:
        lines = networking.resolver_lines(_RESOLV_CONF.read_text(errors="replace"))
    except OSError:
        return None
    if lines is None:
        return None
    ours = root / "resolv.conf"
    ours.write_text(lines)
    ours.chmod(0o644)
    return ours, _RESOLV_CONF.resolve()


def _find_without_network(
    root: Path, visible: Sequence[Path], *, superuser: bool, programs: str
) -> tuple[Sandbox | None, str]:
    bwrap = shutil.which("bwrap", path=programs)
    if bwrap is None:
        return None, "bubblewrap is not installed (Debian, Ubuntu: apt install bubblewrap)"
    setpriv = shutil.which("setpriv", path=programs) if superuser else None
    if superuser and setpriv is None:
        return None, "setpriv is not installed (Debian, Ubuntu: apt install util-linux)"
    if setpriv is not None:
        setpriv = os.path.realpath(setpriv)  # it is run inside, where a link may lead to nowhere
    filtered = bool(seccomp.program())
    sandbox = Sandbox(
        bwrap,
        setpriv,
        _hidden(root, visible),
        tuple(visible),
        filtered,
        chroot=_coreutils_chroot(programs) if superuser else None,
        version=_said_by(bwrap, "--version").removeprefix("bubblewrap "),
    )
    why = _try_out(sandbox, root)
    if why and sandbox.filtered:  # a kernel that knows no filters
        sandbox = replace(sandbox, filtered=False)
        why = _try_out(sandbox, root)
    return (None, f"bubblewrap does not work here: {why}") if why else (sandbox, "")


def _coreutils_chroot(programs: str) -> str | None:
    """That of coreutils: others do not become a user, or look one up."""
    found = shutil.which("chroot", path=f"{programs}:/usr/sbin:/sbin")
    return os.path.realpath(found) if found and "GNU coreutils" in _said_by(found, "--version") else None


def _said_by(program: str, *words: str) -> str:
    """The first line that a program prints; empty if it does not."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run([program, *words], env={}, cwd="/", capture_output=True, timeout=20, check=False)
        return done.stdout.decode(errors="replace").partition("\n")[0].strip()
    return ""


def _try_out(sandbox: Sandbox, root: Path) -> str:
    """Why the sandbox does not work; empty if it does."""
    folder = RunFolder(root / "staging" / "trial")
    for part in (folder.work, folder.tmp, folder.launch):
        part.mkdir(parents=True, exist_ok=True)
    filter_fd = in_memory("filter", seccomp.program())
    command = [sandbox.bwrap, *sandbox.options(folder, (), filter_fd), "--"]
    command += sandbox.command(AccountIdentity(_NOBODY, _NOBODY, "nobody"))[4:]
    if sandbox.router is not None:
        command = [sys.executable, "-I", "-S", keeper.__file__, keeper.TRY_NETWORK, sandbox.router, *command]
    try:
        done = subprocess.run(
            [*command, "/bin/sh", "-c", "exit 7"],
            env={},
            cwd="/",
            capture_output=True,
            timeout=20,
            check=False,
            pass_fds=(filter_fd,),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        os.close(filter_fd)
    if done.returncode != 7:
        return done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
    return ""


class SandboxProbe:
    """The sandbox as it is now. Tried out once, and again when one of its programs, or what permits it, has changed."""

    def __init__(
        self,
        root: Path,
        visible: Sequence[Path],
        *,
        superuser: bool,
        programs: str = PROGRAMS,
        network: Network = "Auto",
    ) -> None:
        self._superuser, self._programs = superuser, programs
        self._find = partial(
            find_sandbox, root, tuple(visible), superuser=superuser, programs=programs, network=network
        )
        self._lock = threading.Lock()
        self._seen: object = None
        self._found: tuple[Sandbox | None, str] = (None, "it was not tried out yet")

    @property
    def known(self) -> tuple[Sandbox | None, str]:
        """What the last trial found; or why there is no sandbox."""
        return self._found

    @property
    def stale(self) -> bool:
        """Whether something has changed since the last trial."""
        return self._seen is None or self._seen != _fingerprint(self._programs, superuser=self._superuser)

    def find(self, *, again: bool = False) -> tuple[Sandbox | None, str]:
        """The sandbox, or None and the reason. Blocks while it is tried out; `again` repeats a trial that failed."""
        with self._lock:
            seen = _fingerprint(self._programs, superuser=self._superuser)
            found = self._found[0]
            if seen != self._seen or (again and (found is None or found.shared_because)):
                self._found = self._find()
                self._seen = seen
            return self._found


def _fingerprint(programs: str, *, superuser: bool) -> object:
    """Which programs there are, and what permits them; cheap enough to be asked before every job."""
    names = [f"{folder}/{name}" for folder in programs.split(":") for name in _NAMES] + [str(_RESOLV_CONF)]
    files = []
    for name in names:
        with contextlib.suppress(OSError):
            info = os.stat(name)
            files.append((name, info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns))
    switches = []
    for name in () if superuser else _SWITCHES:
        with contextlib.suppress(OSError):
            switches.append(Path(name).read_bytes())
    return files, switches


def _hidden(root: Path, visible: Sequence[Path]) -> tuple[Path, ...]:
    """The platform's own folders, where they lie inside one that jobs see."""
    shown = [Path(place).resolve() for place in (*_SYSTEM, *_MAYBE_LINKS)] + [folder.resolve() for folder in visible]
    data = root.resolve()
    inside = [folder for folder in (data.parent, data) if any(place in folder.parents for place in shown)]
    return tuple(inside[:1])


def closed_parent(root: Path) -> Path | None:
    """A folder above the root that other accounts may not pass; without a sandbox, jobs could not reach theirs."""
    return next((folder for folder in root.resolve().parents if not folder.stat().st_mode & 0o001), None)
