"""What `isthmus doctor` looks at. Each check answers ok, warn or fail, what it saw, and the remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from isthmus import __version__
from isthmus._kit.interpreters import is_optimised
from isthmus.cli.tables import size
from isthmus.client import requests
from isthmus.client.answers import Answer, check
from isthmus.client.config import local_instance
from isthmus.client.sync import Client
from isthmus.client.transport import Transport
from isthmus.errors import IsthmusError, Misconfigured

_SKEW = 5.0
_LITTLE = 1 << 30
_CGROUPS = Path("/sys/fs/cgroup")
_NEEDED = {"cpu", "memory"}
_SLOW = (
    "this Python was built without optimisations, and a server takes 1.3 to 1.6 times as long with it: "
    "use Debian's python3, or PYTHON_CONFIGURE_OPTS='--enable-optimizations --with-lto' pyenv install --force VERSION"
)


_PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
_ISOLATE = "apt install bubblewrap on that machine; the next job uses it"
_FIRST = "jobs can take ports of that machine, and have a network of their own only in a sandbox: see isolation"
_SEPARATE = (
    "jobs can take ports of that machine: apt install slirp4netns there, and set local.network of the site to Auto"
)


class Finding(NamedTuple):
    """What one look found."""

    name: str
    result: str
    message: str
    remedy: str = ""


def machine_checks(environment: Mapping[str, str]) -> list[Finding]:
    """What this machine has; it matters where `isthmus up` runs."""
    folder = local_instance(environment)
    disk = [disk_check(folder)] if folder.is_dir() else []
    return [python_check(), sandbox_check(), network_check(), cgroup_check(), *disk, postgres_check()]


def python_check() -> Finding:
    """The interpreter and this program. A slow interpreter works: it is worth a hint, not a warning."""
    reported = f"Python {sys.version.split()[0]}, isthmus {__version__}"
    return Finding("python", "ok", reported, _SLOW if is_optimised(sysconfig.get_config_vars()) is False else "")


def sandbox_check() -> Finding:
    """Whether this machine can isolate jobs: bubblewrap is there, and the kernel lets it make namespaces."""
    bwrap = shutil.which("bwrap", path=_PROGRAMS)
    remedy = "apt install bubblewrap; without it only jobs of the tenant default run here, and they are not isolated"
    if bwrap is None:
        return Finding("sandbox", "warn", "bubblewrap is not installed", remedy)
    words = [bwrap, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("sandbox", "warn", f"bubblewrap does not run: {error}", remedy)
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())[:200]
        allow = "let users make namespaces: sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for bwrap"
        return Finding("sandbox", "warn", f"bubblewrap does not work here: {said}", allow)
    return Finding("sandbox", "ok", "jobs can be isolated with bubblewrap")


def network_check() -> Finding:
    """Whether this machine can give each job a network of its own."""
    remedy = "apt install slirp4netns; without it jobs share this machine's network, and can take ports of it"
    if shutil.which("slirp4netns", path=_PROGRAMS) is None:
        return Finding("network", "warn", "slirp4netns is not installed", remedy)
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        allow = "load the module tun and let this user open it; until then jobs share this machine's network"
        return Finding("network", "warn", "slirp4netns cannot open /dev/net/tun", allow)
    return Finding("network", "ok", "jobs can have a network of their own with slirp4netns")


def cgroup_check() -> Finding:
    """Whether limits on cpu and memory can be held by the kernel."""
    unlimited = "run `isthmus up` as root or delegate a cgroup to it (systemd: Delegate=yes); else rlimits are used"
    unified = _CGROUPS / "cgroup.controllers"
    if unified.exists():
        lacking = _NEEDED - set(unified.read_text().split())
        if lacking:
            return Finding("cgroups", "warn", f"version 2 without {', '.join(sorted(lacking))}", unlimited)
        mine = _own_cgroup()
        if mine is not None and os.access(mine / "cgroup.procs", os.W_OK) and os.access(mine, os.W_OK):
            return Finding("cgroups", "ok", f"version 2, writable at {mine}")
        return Finding("cgroups", "warn", "version 2, but not writable for you", unlimited)
    there = {name for name in _NEEDED if (_CGROUPS / name).is_dir()}
    if there == _NEEDED and all(os.access(_CGROUPS / name, os.W_OK) for name in _NEEDED):
        return Finding("cgroups", "ok", "version 1, writable")
    if there:
        return Finding("cgroups", "warn", "version 1, but not writable for you", unlimited)
    return Finding("cgroups", "warn", "there are none", unlimited)


def _own_cgroup() -> Path | None:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    return None if own is None else _CGROUPS / own.lstrip("/")


def disk_check(folder: Path) -> Finding:
    """Room where an instance on this machine keeps everything, unless it was configured otherwise."""
    free = shutil.disk_usage(folder).free
    reported = f"{size(free)} free in {folder}, the data folder of `isthmus up` on this machine"
    if free < _LITTLE:
        return Finding("disk", "warn", reported, "make room, or keep the data elsewhere with `isthmus up --data DIR`")
    return Finding("disk", "ok", reported)


def postgres_check() -> Finding:
    """Whether PostgreSQL can be used as the store."""
    if find_spec("asyncpg") is None:
        return Finding(
            "postgres",
            "ok",
            "not installed, and only needed for several control planes on one database: "
            "pip install 'isthmus[postgres]'",
        )
    return Finding("postgres", "ok", "the driver is installed")


def server_checks(connect: Callable[[], Client]) -> list[Finding]:
    """What the server says; later checks need the earlier ones."""
    try:
        client = connect()
    except Misconfigured as error:
        return [Finding("server", "warn", "no server is known", error.message)]
    with client:
        try:
            answer = _exchange(client, requests.version())
            reported = client.version()
        except IsthmusError as error:
            remedy = "start it with `isthmus up`, or correct ISTHMUS_URL or `isthmus login --url`"
            return [Finding("server", "fail", error.message, remedy)]
        found = [_version_check(client.url, reported), _ready_check(client), _clock_check(answer.headers)]
        return [*found, *_token_checks(client)]


def _ready_check(client: Client) -> Finding:
    """Whether the server can do all its work: its store answers, and there is space on its disk."""
    try:
        check(_exchange(client, requests.ready()))
    except IsthmusError as error:
        return Finding("ready", "fail", error.message)
    return Finding("ready", "ok", "the server takes new work")


def _exchange(client: Client, request: requests.Request) -> Answer:
    """The server's answer with its headers and whatever its code."""
    transport = Transport(client.access)
    try:
        return transport.send(request)
    finally:
        transport.close()


def _version_check(url: str, reported: Mapping[str, object]) -> Finding:
    theirs = str(reported.get("isthmusVersion") or reported.get("gitVersion") or "unknown")
    return Finding("server", "ok", f"{url} answers, version {theirs}")


def _clock_check(headers: Mapping[str, str]) -> Finding:
    date = headers.get("date")
    if not date:
        return Finding("clock", "warn", "the server does not report its time")
    skew = abs((datetime.now(UTC) - parsedate_to_datetime(date).astimezone(UTC)).total_seconds())
    if skew > _SKEW:
        return Finding("clock", "warn", f"{skew:.0f} s away from the server's", "set both clocks with NTP")
    return Finding("clock", "ok", "agrees with the server's")


def _token_checks(client: Client) -> list[Finding]:
    try:
        me = client.whoami()
    except IsthmusError as error:
        return [Finding("token", "fail", error.message, "sign in again: isthmus login")]
    roles = [":".join(str(g).split(":")[1:]) for g in me.get("groups") or () if str(g).startswith("isthmus:")]
    found = [Finding("token", "ok", f"{me.get('username')}, {', '.join(roles) or 'no role'}")]
    try:
        sites = client.list("sites")
    except IsthmusError as error:
        return [*found, Finding("sites", "warn", error.message)]
    ready = [site for site in sites if (site.get("status") or {}).get("phase") == "Ready"]
    reported = f"{len(ready)} of {len(sites)} ready"
    if not ready:
        return [*found, Finding("sites", "warn", reported, "look at `isthmus sites`; jobs wait until one is ready")]
    return [*found, Finding("sites", "ok", reported), *isolation_checks(ready)]


def isolation_checks(sites: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """What jobs really get at each site that isolates jobs by itself, as its last probe found."""
    found = []
    for site in sites:
        name = (site.get("metadata") or {}).get("name")
        features = (site.get("status") or {}).get("features") or {}
        isolation, network = str(features.get("isolation") or ""), str(features.get("network") or "")
        if isolation.startswith("none"):
            why = isolation.removeprefix("none").removeprefix(": ") or "its sandbox is switched off"
            found.append(Finding("isolation", "warn", f"jobs at site {name} are not isolated: {why}", _ISOLATE))
        elif isolation:
            found.append(Finding("isolation", "ok", f"jobs at site {name} run in a sandbox: {isolation}"))
        if network.startswith("the machine's own"):
            remedy = _FIRST if isolation.startswith("none") else _SEPARATE
            found.append(Finding("network", "warn", f"the network of jobs at site {name} is {network}", remedy))
        elif network:
            found.append(Finding("network", "ok", f"the network of jobs at site {name}: {network}"))
    return found
