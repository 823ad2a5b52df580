"""One job on a page: what a person wants to know of it, in the order she asks."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from isthmus._kit.durations import format_duration
from isthmus._kit.reasons import Reasons, read_reasons
from isthmus.cli.columns import command, ending, run_time
from isthmus.cli.tables import PHASE_COLOURS, age, counted, one_line, size
from isthmus.client.requests import Object

from .plan_pages import plan_page
from .sparklines import lines as sparklines
from .waiting import WAITING

_ANSI = {"green": "32", "cyan": "36", "blue": "34", "yellow": "33", "red": "31", "magenta": "35"}
_MANY = 20


def page(job: Object, events: list[Object], outputs: list[Object], metrics: Object | None = None) -> str:
    """The whole page."""
    lines = [f"{title + ':':<12}{one_line(value)}" for title, value in _facts(job) if value]
    lines += _section("Sites", _sites(job))
    if plan := (job.get("status") or {}).get("plan"):
        lines += ["", f"Plan (made {plan['decidedAt']}):", *plan_page(plan, "  ").splitlines()]
    lines += _section("Measured", (f"  {title:<12}{one_line(line)}" for title, line in sparklines(metrics or {})))
    lines += _section("Output files", (_output(file) for file in outputs[:_MANY]))
    if len(outputs) > _MANY:
        lines.append(f"  … and {len(outputs) - _MANY} more")
    lines += _section("Events", (_event(event) for event in events[-_MANY:]))
    text = "\n".join(lines) + "\n"
    return _coloured(text, str((job.get("status") or {}).get("phase") or ""))


def _facts(job: Object) -> Iterable[tuple[str, str]]:
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    yield "Job", f"{meta['name']}  ({meta.get('namespace', '')})"
    yield "Phase", str(status.get("phase") or "Pending")
    reason, message = str(status.get("reason") or ""), _reasons(job).headline
    yield "Why", f"{message} ({reason})" if message and reason else message or reason
    yield "Exit", ending(job)
    yield "Command", command(job)
    yield "Packages", ", ".join((spec.get("python") or {}).get("requirements") or ())
    yield "Image", "  ".join(filter(None, (spec.get("image"), status.get("image"))))
    yield "Wants", _wants(spec)
    yield "Site", ", ".join(filter(None, (status.get("site"), read_reasons(status.get("siteMessage") or "").headline)))
    yield "Engine id", str(status.get("engineId") or "")
    yield "Devices", ", ".join(f"{c}: {' '.join(units)}" for c, units in (status.get("devices") or {}).items())
    if (status.get("progress") or 0) >= 0.005:
        yield "Progress", f"{status['progress']:.0%} kept from earlier attempts"
    yield "Array", _array(status.get("array") or {})
    yield "Waits for", ", ".join(_dependency(dependency) for dependency in spec.get("dependencies") or ())
    yield "Attempt", _attempt(spec, status)
    yield from _times(job)
    yield "Used", _used(status.get("usage") or {})
    yield "Reported", ", ".join(f"{name} {value:.6g}" for name, value in (status.get("reported") or {}).items())
    yield "Outputs", _outputs(status.get("outputs") or {})


def _reasons(job: Object) -> Reasons:
    """Why it is in its phase; sites are named only for what waits."""
    status = job.get("status") or {}
    message = str(status.get("message") or "")
    return read_reasons(message) if (status.get("phase") or "Pending") in WAITING else Reasons(message)


def _sites(job: Object) -> Iterable[str]:
    """What is to be said of single sites, closest first."""
    found = _reasons(job).sites or read_reasons((job.get("status") or {}).get("siteMessage") or "").sites
    width = max((len(site) for site, _ in found), default=0)
    return (f"  {site:<{width}}  {one_line(why)}" for site, why in found)


def _dependency(dependency: Object) -> str:
    takes = f" (its outputs into {dependency['outputsInto']})" if dependency.get("outputsInto") else ""
    return f"{dependency['job']} {dependency.get('condition', '')}".strip() + takes


def _wants(spec: Object) -> str:
    resources = spec.get("resources") or {}
    parts = [counted(resources.get("cpus", "1"), "CPU")]
    parts += [f"{resources['memory']} memory"] if resources.get("memory") else []
    parts += [f"{d.get('count', 1)} {d['class']}" for d in resources.get("devices") or ()]
    choices = resources.get("anyOf") or ()
    if choices:
        parts.append(" or ".join(f"{'/'.join(map(str, c.get('counts') or [1]))} {c['class']}" for c in choices))
    parts += [f"{resources['tasks']} tasks"] if resources.get("tasks", 1) != 1 else []
    parts += [f"{resources['nodes']} nodes"] if resources.get("nodes", 1) != 1 else []
    parts += [f"at most {resources['timeLimit']}"] if resources.get("timeLimit") else []
    placement = spec.get("placement") or {}
    parts += [f"at {' or '.join(placement['sites'])}"] if placement.get("sites") else []
    parts += [f"where {placement['expression']}"] if placement.get("expression") else []
    parts += [f"priority {spec['priority']}"] if spec.get("priority") else []
    return ", ".join(parts)


def _array(array: Object) -> str:
    if not array:
        return ""
    counts = ", ".join(f"{array.get(k, 0)} {k}" for k in ("active", "succeeded", "failed", "cancelled"))
    return f"{counts} of {array.get('total', 0)}"


def _attempt(spec: Object, status: Object) -> str:
    limit = (spec.get("retries") or {}).get("limit") or 0
    stops = sum(past.get("reason") in ("Preempted", "NodeLost") for past in status.get("tries") or ())
    if stops and spec.get("restartable") is not None:
        return f"{(status.get('attempt') or 0) + 1}; stopped {counted(stops, 'time')} for others"
    return f"{(status.get('attempt') or 0) + 1} of at most {limit + 1}" if limit else ""


def _times(job: Object) -> Iterable[tuple[str, str]]:
    status = job.get("status") or {}
    who = status.get("submittedBy") or status.get("member")
    for title, path in (
        ("Submitted", ("metadata", "creationTimestamp")),
        ("Started", ("status", "startedAt")),
        ("Finished", ("status", "finishedAt")),
        ("Next try", ("status", "retryAt")),
        ("Deadline", ("spec", "deadline")),
    ):
        text = str((job.get(path[0]) or {}).get(path[1]) or "")
        later = title in ("Next try", "Deadline")
        reported = (text if later else f"{text}  ({age(*path)(job)} ago)") if text else ""
        yield title, f"{reported} by {who}" if title == "Submitted" and who else reported
    start = status.get("estimatedStart") or {}
    yield "May start", f"between {start['earliest']} and {start['latest']}  (an estimate)" if start else ""
    yield "Ran for", run_time(job) if status.get("startedAt") else ""


def _used(usage: Object) -> str:
    parts = []
    if usage.get("cpuSeconds") is not None:
        parts.append(f"{format_duration(round(usage['cpuSeconds'], 3))} of CPU time")
    if usage.get("peakMemoryBytes"):
        parts.append(f"{size(usage['peakMemoryBytes'])} memory at most")
    if usage.get("energyJoules") is not None:
        source = usage.get("energySource") or "unknown"
        parts.append(f"{usage['energyJoules']:.3g} J ({source})")
    return ", ".join(parts)


def _outputs(outputs: Object) -> str:
    if not outputs:
        return ""
    skipped = outputs.get("skipped") or []
    reported = f"{counted(outputs.get('count', 0), 'file')}, {size(outputs.get('bytes', 0))}"
    return reported + (f"; not kept: {'; '.join(skipped[:3])}" if skipped else "")


def _output(file: Object) -> str:
    link = f" -> {file['link']}" if file.get("link") else ""
    return f"  {size(file.get('size', 0)):>8}  {one_line(file['path'] + link)}"


def _event(event: Object) -> str:
    count = f" (x{event['count']})" if event.get("count", 1) > 1 else ""
    message = one_line(str(event.get("message", "")))
    return f"  {age('lastTimestamp')(event):>5}  {event.get('reason', ''):<18} {message}{count}"


def _section(title: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return ["", f"{title}:", *found] if found else []


def _coloured(text: str, phase: str) -> str:
    import os

    code = _ANSI.get(PHASE_COLOURS.get(phase, ""))
    if code is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return text.replace(f"{'Phase:':<12}{phase}", f"{'Phase:':<12}\x1b[{code}m{phase}\x1b[0m", 1)
