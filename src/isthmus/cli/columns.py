"""The columns of each kind, and how a job's times and usage are reported.

A kind has the columns that it declares, unless there is something better here: values made of several fields.
"""

from __future__ import annotations

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.durations import format_duration
from isthmus._kit.quantities import format_bytes
from isthmus._kit.reasons import read_reasons
from isthmus.client.places import Place, place_of
from isthmus.client.requests import Object

from .tables import TableColumn, age, at

NAME = TableColumn("NAME", at("metadata", "name"))
NAMESPACE = TableColumn("NAMESPACE", at("metadata", "namespace"))
AGE = TableColumn("AGE", age("metadata", "creationTimestamp"))


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
    # The headline alone: `isthmus job` has the rest, site by site.
    return read_reasons(str(status.get("message") or "")).headline or str(status.get("reason") or "")


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


COLUMNS: dict[str, tuple[TableColumn, ...]] = {
    "Job": (
        NAME,
        TableColumn("PHASE", at("status", "phase")),
        TableColumn("SITE", at("status", "site")),
        TableColumn("EXIT", ending),
        TableColumn("TIME", run_time),
        AGE,
        TableColumn("ATTEMPT", _attempt, wide=True),
        TableColumn("ENGINE ID", at("status", "engineId"), wide=True),
        TableColumn("COMMAND", command, wide=True),
        TableColumn("MESSAGE", why),
    ),
    "Experiment": (
        NAME,
        TableColumn("PHASE", at("status", "phase")),
        TableColumn("RUNS", _runs),
        TableColumn("FAILED", at("status", "runs", "failed")),
        TableColumn("BEST", at("status", "best")),
        AGE,
        TableColumn("METHOD", at("spec", "search", "method"), wide=True),
        TableColumn("MESSAGE", at("status", "message")),
    ),
    "Site": (
        NAME,
        TableColumn("DRIVER", at("spec", "driver")),
        TableColumn("PHASE", at("status", "phase")),
        TableColumn("CPUS", _cpus),
        TableColumn("MEMORY", _memory),
        TableColumn("DEVICES", _devices),
        TableColumn("VERSION", at("status", "version"), wide=True),
        AGE,
        TableColumn("MESSAGE", at("status", "message")),
    ),
    "DeviceClass": (
        NAME,
        TableColumn("VENDOR", at("spec", "vendor")),
        TableColumn("ARCHITECTURE", at("spec", "architecture")),
        TableColumn("TOTAL", at("status", "total")),
        TableColumn("WHERE", _where),
        AGE,
        TableColumn("DESCRIPTION", at("spec", "description"), wide=True),
    ),
    "Tenant": (
        NAME,
        TableColumn("PHASE", at("status", "phase")),
        TableColumn("JOBS", at("status", "activeJobs")),
        TableColumn("MEMBERS", _members),
        AGE,
        TableColumn("DESCRIPTION", at("spec", "description")),
    ),
}


def columns_of(kind: str, everywhere: bool = False) -> tuple[TableColumn, ...]:
    """The columns of a kind; with the tenant in front when there may be several."""
    found = COLUMNS.get(kind) or _declared(place_of(kind))
    return (NAMESPACE, *found) if everywhere else found


def _declared(place: Place) -> tuple[TableColumn, ...]:
    """The columns that a kind declares; an event's name says nothing to anybody."""
    found = [
        TableColumn(cell.title, (age if cell.type == "date" else at)(*cell.path.lstrip(".").split(".")), cell.wide)
        for cell in place.columns
    ]
    return (*found,) if place.kind == "Event" else (NAME, *found)
