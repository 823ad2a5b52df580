"""A plan on a page: why, and a table of the alternatives with their end, cost and energy. Pure."""

from __future__ import annotations

from isthmus._kit.clock import parse_timestamp
from isthmus._kit.durations import format_duration
from isthmus._kit.reasons import read_reasons
from isthmus.cli.tables import one_line, plain_table
from isthmus.client.requests import Object

_TITLES = ("PLAN", "SITE", "DEVICES", "STARTS (UTC)", "ENDS (UTC)", "RUNS", "COST", "ENERGY", "IN TIME", "KNOWN FROM")
_SOURCES = {"PastRuns": "past runs", "Manifest": "manifest", "Model": "a model", "Assumed": "assumed"}
_MOST = 12


def plan_page(plan: Object, indent: str = "") -> str:
    """The whole page."""
    why = read_reasons(str(plan["message"]))
    lines = [
        f"{one_line(why.headline).rstrip('.')}.",
        *(f"  {one_line(f'{site}: {reason}')}" for site, reason in why.sites),
    ]
    if plan.get("deadline"):
        lines.append(f"Deadline: {plan['deadline']}")
    options = [plan["chosen"]] if plan.get("chosen") else []
    options += plan.get("alternatives") or []
    if options:
        rows = [_row(option, chosen=option is plan.get("chosen")) for option in options[:_MOST]]
        lines += ["", *plain_table(_TITLES, rows)]
    if len(options) > _MOST:
        lines.append(f"… and {len(options) - _MOST} more")
    notes = [reported for reported in map(one_line, plan.get("leftOut") or ()) if reported not in lines[0]]
    if notes:
        lines += ["", "Note:", *(f"  {reported}" for reported in notes)]
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in lines)


def _row(option: Object, *, chosen: bool) -> tuple[str, ...]:
    devices = f"{option.get('count', 0)} {option['class']}" if option.get("class") else "cpus"
    energy = option.get("energyJoules")
    late = option.get("lateSeconds") or 0
    return (
        "→" if chosen else "",
        str(option["site"]),
        devices,
        _clock(option["startsAt"]),
        _clock(option["endsAt"]),
        f"{format_duration(round(option['seconds'], 1))} ±{option['uncertainty']:.0%}",
        f"{option['cost']:.2f}",
        "" if energy is None else _joules(energy),
        "yes" if option.get("meetsDeadline") else f"{format_duration(max(1, round(late)))} late",
        _SOURCES.get(option["source"], str(option["source"])),
    )


def _clock(text: str) -> str:
    return parse_timestamp(text).strftime("%m-%d %H:%M:%S")


def _joules(joules: float) -> str:
    hours = joules / 3600
    return f"{hours / 1000:.2f} kWh" if hours >= 1000 else f"{hours:.3g} Wh" if hours >= 1 else f"{joules:.3g} J"
