"""The columns of each kind, and how a job's times and usage are told.

A kind has the columns that it declares, unless there is something better here: values made of several fields.
"""

from __future__ import annotations

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.durations import format_duration
from isthmus._kit.quantities import format_bytes
from isthmus.client.places import Place, place_of
from isthmus.client.requests import Object

from .tables import Column, age, at

NAME = Column("NAME", at("metadata", "name"))
NAMESPACE = Column("NAMESPACE", at("metadata", "namespace"))
AGE = Column("AGE", age("metadata", "creationTimestamp"))


def run_time(job: Object) -> str:
    """How long the job ran, or has been running."""
    status = job.get("status") or {}
    if not status.get("startedAt"):
        return ""
    end = parse_timestamp(status["finishedAt"]) if status.get("finishedAt") else utcnow()
    seconds = max(0.0, (end - parse_timestamp(status["startedAt"])).total_seconds())
    return format_duration(seconds)


def ending(job: Object) -> str:
    """Exit code or signal."""
    status = job.get("status") or {}
    code = status.get("exitCode")
    return str(status.get("signal") or ("" if code is None else code))


def why(job: Object) -> str:
    """What there is to say beyond the phase."""
    status = job.get("status") or {}
    if array := status.get("array"):
        return f"{array.get('succeeded', 0)}/{array.get('total', 0)} succeeded, {array.get('failed', 0)} failed"
    return str(status.get("message") or status.get("reason") or "")


def command(job: Object) -> str:
    """What the job runs, in a line."""
    spec = job.get("spec") or {}
    if spec.get("command"):
        from shlex import join

        return join(spec["command"])
    lines = str(spec.get("script") or "").splitlines()
    return next((line for line in lines if line.strip() and not line.startswith("#")), lines[0] if lines else "")


def _runs(experiment: Object) -> str:
    runs = (experiment.get("status") or {}).get("runs") or {}
    if not runs:
        return ""
    ended = sum(runs.get(word, 0) for word in ("succeeded", "failed", "cancelled"))
    return f"{ended}/{runs.get('total', 0)}"


def _attempt(job: Object) -> str:
    """People count from 1."""
    attempt = (job.get("status") or {}).get("attempt")
    return "" if attempt is None else str(int(attempt) + 1)


def _cpus(site: Object) -> str:
    cpus = ((site.get("status") or {}).get("capacity") or {}).get("cpus")
    return "" if cpus is None else f"{cpus:g}"


def _memory(site: Object) -> str:
    memory = ((site.get("status") or {}).get("capacity") or {}).get("memoryBytes")
    return "" if not memory else format_bytes(memory)


def _devices(site: Object) -> str:
    devices = ((site.get("status") or {}).get("capacity") or {}).get("devices") or {}
    return ", ".join(f"{name}:{count}" for name, count in sorted(devices.items()))


def _where(device: Object) -> str:
    sites = (device.get("status") or {}).get("sites") or {}
    return ", ".join(f"{name}:{count}" for name, count in sorted(sites.items()))


def _members(tenant: Object) -> str:
    members = (tenant.get("spec") or {}).get("members") or []
    return ", ".join(f"{member.get('user')}({member.get('role', 'member')})" for member in members)


COLUMNS: dict[str, tuple[Column, ...]] = {
    "Job": (
        NAME,
        Column("PHASE", at("status", "phase")),
        Column("SITE", at("status", "site")),
        Column("EXIT", ending),
        Column("TIME", run_time),
        AGE,
        Column("ATTEMPT", _attempt, wide=True),
        Column("ENGINE ID", at("status", "engineId"), wide=True),
        Column("COMMAND", command, wide=True),
        Column("MESSAGE", why),
    ),
    "Experiment": (
        NAME,
        Column("PHASE", at("status", "phase")),
        Column("RUNS", _runs),
        Column("FAILED", at("status", "runs", "failed")),
        Column("BEST", at("status", "best")),
        AGE,
        Column("METHOD", at("spec", "search", "method"), wide=True),
        Column("MESSAGE", at("status", "message")),
    ),
    "Site": (
        NAME,
        Column("DRIVER", at("spec", "driver")),
        Column("PHASE", at("status", "phase")),
        Column("CPUS", _cpus),
        Column("MEMORY", _memory),
        Column("DEVICES", _devices),
        Column("VERSION", at("status", "version"), wide=True),
        AGE,
        Column("MESSAGE", at("status", "message")),
    ),
    "DeviceClass": (
        NAME,
        Column("VENDOR", at("spec", "vendor")),
        Column("ARCHITECTURE", at("spec", "architecture")),
        Column("TOTAL", at("status", "total")),
        Column("WHERE", _where),
        AGE,
        Column("DESCRIPTION", at("spec", "description"), wide=True),
    ),
    "Tenant": (
        NAME,
        Column("PHASE", at("status", "phase")),
        Column("JOBS", at("status", "activeJobs")),
        Column("MEMBERS", _members),
        AGE,
        Column("DESCRIPTION", at("spec", "description")),
    ),
}


def columns_of(kind: str, everywhere: bool = False) -> tuple[Column, ...]:
    """The columns of a kind; with the tenant in front when there may be several."""
    found = COLUMNS.get(kind) or _declared(place_of(kind))
    return (NAMESPACE, *found) if everywhere else found


def _declared(place: Place) -> tuple[Column, ...]:
    """The columns that a kind declares; an event's name says nothing to anybody."""
    found = [
        Column(cell.title, (age if cell.type == "date" else at)(*cell.path.lstrip(".").split(".")), cell.wide)
        for cell in place.columns
    ]
    return (*found,) if place.kind == "Event" else (NAME, *found)
