"""What the owner of a machine permits, who may be another than the platform's administrator. Pure.

The file `agent.toml` in the agent's folder; without it every tenant's jobs run, with any image and device, at any
hour, under accounts that nobody on the machine has. Commands of device classes never run unless the owner says so:
they would run outside of the sandbox.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import time
from fnmatch import fnmatchcase
from typing import Any

from isthmus._kit.quantities import parse_bytes
from isthmus.engines.base import Run
from isthmus.errors import EngineRefused, Misconfigured, SiteUnavailable
from isthmus.resources.deviceclasses import DeviceClass

_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
ISOLATIONS = ("Required", "Preferred", "BestEffort", "None")
NETWORKS = ("Auto", "Private", "Host", "None")


@dataclass(frozen=True, slots=True)
class OwnerRules:
    """What is permitted on this machine. In patterns, * stands for any text."""

    tenants: tuple[str, ...] = ("*",)
    """Patterns of tenants whose jobs run. Default: all that the platform sends."""
    images: tuple[str, ...] = ("*",)
    """Patterns of images, as jobs name them; an empty list permits none. Default: all."""
    devices: tuple[str, ...] = ("*",)
    """Patterns of device classes that jobs are given. Default: all that are found."""
    hours: str = ""
    """When jobs may start, by the machine's clock, such as 22:00-06:00. Default: at any hour."""
    accounts: tuple[str, ...] = ()
    """Accounts of this machine that jobs may run under. Default none: a number that nobody on the machine has."""
    commands: bool = False
    """Whether commands and files of device classes, which measure energy, are used. Default: no."""
    cpus: float | None = None
    """Cpus to offer. Default: all."""
    memory: str | None = None
    """Memory to offer, such as 8Gi. Default: nine tenths."""
    isolation: str = "Preferred"
    """As `local.isolation` of a site: Required, Preferred, BestEffort or None."""
    network: str = "Auto"
    """As `local.network` of a site: Auto, Private, Host or None."""
    visible: tuple[str, ...] = ()
    """Folders that jobs may read besides the system's own. Default none."""
    max_contents: str = "5Gi"
    """Of files sent along with jobs that are kept for the next. Default 5Gi."""
    upgrades: bool = True
    """Whether the control plane keeps the agent at its own version. Default: yes."""
    device: tuple[Mapping[str, Any], ...] = field(default=())
    """Devices that are not found by their files: tables with class, count and paths."""

    def check(self, run: Run, clock: time, known_uid: Callable[[int], bool], *, superuser: bool) -> None:
        """Refuse what the owner does not permit: raises EngineRefused, or SiteUnavailable outside of the hours."""
        if not _any(self.tenants, run.namespace):
            raise EngineRefused(
                f"The owner of this machine runs no jobs of tenant {run.namespace}. Choose another site."
            )
        if run.image is not None and not _any(self.images, run.image):
            raise EngineRefused(
                f"The owner of this machine does not permit the image {run.image}. Choose another site."
            )
        for name in run.devices:
            if not _any(self.devices, name):
                raise EngineRefused(f"The owner of this machine does not give {name} to jobs. Choose another site.")
        if run.account.user is not None and superuser and run.account.user not in self.accounts:
            raise EngineRefused(
                f"The owner of this machine does not permit jobs under the account {run.account.user}: it is not "
                "among accounts in agent.toml."
            )
        if run.account.user is None and run.account.uid and superuser and known_uid(run.account.uid):
            raise EngineRefused(f"The number {run.account.uid} of the tenant is that of an account of this machine.")
        if self.hours and not within(self.hours, clock):
            raise SiteUnavailable(f"The owner of this machine permits jobs between {self.hours}. It is tried again.")

    def permitted(self, device_class: DeviceClass) -> DeviceClass | None:
        """A device class as it is used here; None if its devices are not given to jobs."""
        if not _any(self.devices, device_class.name):
            return None
        if self.commands:
            return device_class
        spec = device_class.spec
        harmless = {
            name: None
            for name in ("meter", "use")
            if (found := getattr(spec, name)) is not None
            and (getattr(found, "command", None) or getattr(found, "path", None))
        }
        return device_class.model_copy(update={"spec": spec.model_copy(update=harmless)}) if harmless else device_class

    def describe(self) -> str:
        """In one line, for the site's inventory."""
        said = [
            f"{name}: {', '.join(patterns) or 'none'}"
            for name in ("tenants", "images", "devices")
            if (patterns := getattr(self, name)) != ("*",)
        ]
        if self.hours:
            said.append(f"hours: {self.hours}")
        return "; ".join(said) or "everything"


def within(hours: str, clock: time) -> bool:
    """Whether a time of the day lies in a span, which may go over midnight."""
    found = _HOURS.fullmatch(hours)
    assert found is not None, "the rules were parsed"
    begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
    return begin <= clock < end if begin <= end else clock >= begin or clock < end


def parse_rules(text: str) -> OwnerRules:
    """The owner's file; raises Misconfigured that names the line or the field."""
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misconfigured(f"agent.toml is not TOML: {error}") from None
    known = {one.name: one for one in fields(OwnerRules)}
    for name, value in said.items():
        if name not in known:
            raise Misconfigured(f"agent.toml: there is no setting {name!r}; there are {', '.join(known)}")
        _check(name, value)
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    return OwnerRules(**values)


def _check(name: str, value: object) -> None:
    if name == "device":
        good = isinstance(value, list) and all(_is_device(one) for one in value)
        wanted = "tables with class (a name), count (a number) and paths (below /dev)"
    elif name in ("tenants", "images", "devices", "accounts", "visible"):
        good = isinstance(value, list) and all(isinstance(one, str) for one in value)
        wanted = "a list of texts"
    elif name in ("commands", "upgrades"):
        good, wanted = isinstance(value, bool), "true or false"
    elif name == "cpus":
        good, wanted = isinstance(value, int | float) and not isinstance(value, bool) and value > 0, "a number above 0"
    elif name in ("memory", "max_contents"):
        good, wanted = _is_size(value), "a size such as 8Gi"
    elif name == "hours":
        good, wanted = isinstance(value, str) and _HOURS.fullmatch(value) is not None, "such as 22:00-06:00"
    else:
        words = ISOLATIONS if name == "isolation" else NETWORKS
        good, wanted = value in words, f"one of {', '.join(words)}"
    if not good:
        raise Misconfigured(f"agent.toml: {name} must be {wanted}")


def _is_device(value: object) -> bool:
    if (
        not isinstance(value, dict)
        or not isinstance(value.get("class"), str)
        or set(value) - {"class", "count", "paths"}
    ):
        return False
    paths = value.get("paths", [])
    count = value.get("count", 1)
    if not isinstance(paths, list) or not isinstance(count, int) or not 1 <= count <= 10_000:
        return False
    return all(isinstance(path, str) and path.startswith("/dev/") and ".." not in path.split("/") for path in paths)


def _is_size(value: object) -> bool:
    try:
        return isinstance(value, str) and parse_bytes(value) > 0
    except ValueError:
        return False


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
