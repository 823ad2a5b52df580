"""`isthmus usage`: what runs used, and what it cost."""

from __future__ import annotations

import csv
import re
import sys
from calendar import monthrange
from collections.abc import Mapping
from datetime import UTC, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from isthmus._kit.clock import parse_timestamp, utcnow
from isthmus._kit.durations import parse_duration
from isthmus.client.requests import Request
from isthmus.errors import Invalid

from .failures import say
from .options import Format, Namespace, Token, Url, client_for, said_before
from .tables import table, write

_PATH = "/apis/isthmus.dev/v1/usage"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MONTH = re.compile(r"(\d{4})-(\d\d)")
_CSV = ("runs", "running", "hours", "cpuHours", "usedCpuHours", "energyKwh", "cost")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class UsageBy(StrEnum):
    """What sums are of."""

    MONTH = "month"
    DAY = "day"
    TENANT = "tenant"
    PERSON = "person"
    PROJECT = "project"
    SITE = "site"
    DEVICE = "device"


class UsageFormat(StrEnum):
    """How sums are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    YAML = "yaml"


def usage(
    by: Annotated[UsageBy, typer.Option(help="One line for each of these.")] = UsageBy.MONTH,
    since: Annotated[
        str | None, typer.Option(metavar="DAY|MONTH|DURATION", help="Runs that ended then or later: 2026-11, 30d.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DAY|MONTH|DURATION", help="Runs that ended then or before: 2026-11-18.")
    ] = None,
    output: Annotated[
        UsageFormat | None, typer.Option("--output", "-o", help="How to write the result.", show_default="table")
    ] = None,
    namespace: Namespace = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Show what runs used: cpu hours, device hours, energy, and what it cost.

    Without -n it is the sum over all tenants that you may see. Runs that are not over count until now. The project of
    a job is its label isthmus.dev/project.

    \b
    Examples:
      isthmus usage
      isthmus usage --by person --since 2026-11
      isthmus usage --by device --since 30d -o csv > usage.csv
    """
    asked = {"by": by.value, "since": _day(since, "--since"), "until": _day(until, "--until", last=True)}
    asked["namespace"] = namespace or said_before().namespace or ""
    query = tuple((key, value) for key, value in asked.items() if value)
    form = output or _format(said_before().output)
    with client_for(url, token, namespace) as client:
        answer = client.ask(Request("GET", _PATH, query, repeatable=True))
    if form in (UsageFormat.JSON, UsageFormat.YAML):
        write(answer, Format(form.value))
    elif form is UsageFormat.CSV:
        _write_csv(by.value, answer["items"])
    elif not answer["items"]:
        say("nothing was used")
    else:
        rows = [_row(item.get("name") or "-", item) for item in answer["items"]]
        if len(rows) > 1:
            rows.append(_row("total", answer["total"]))
        titles = ["RUNS", "RUNNING", "HOURS", "CPU HOURS", "DEVICE HOURS", "ENERGY KWH", "COST"]
        table([by.value.upper(), *titles], rows)


def _format(said: Format) -> UsageFormat:
    return UsageFormat(said.value) if said.value in set(UsageFormat) else UsageFormat.TABLE


def _row(name: str, sums: Mapping[str, Any]) -> list[str]:
    devices = ", ".join(f"{device} {hours:.2f}" for device, hours in sums["deviceHours"].items())
    figures = [f"{sums['hours']:.2f}", f"{sums['cpuHours']:.2f}", devices, f"{sums['energyKwh']:.3f}"]
    return [name, str(sums["runs"]), str(sums["running"] or ""), *figures, f"{sums['cost']:.2f}"]


def _write_csv(by: str, items: list[dict[str, Any]]) -> None:
    """One line for each sum, with a column for each class of device."""
    devices = sorted({device for item in items for device in item["deviceHours"]})
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([by, *_CSV, *(f"deviceHours.{device}" for device in devices)])
    for item in items:
        # What a person called her project must not become a formula where the file is opened.
        name = f"'{item['name']}" if item["name"].startswith(_FORMULA) else item["name"]
        hours = (item["deviceHours"].get(device, 0) for device in devices)
        writer.writerow([name, *(item[column] for column in _CSV), *hours])


def _day(text: str | None, option: str, *, last: bool = False) -> str:
    """The day that is meant: of a month its first, or its last."""
    if not text or _DAY.fullmatch(text):
        return text or ""
    if (month := _MONTH.fullmatch(text)) and 1 <= int(month[2]) <= 12 and int(month[1]):
        return f"{text}-{monthrange(int(month[1]), int(month[2]))[1] if last else 1:02}"
    try:
        return (utcnow() - timedelta(seconds=parse_duration(text))).strftime("%Y-%m-%d")
    except (ValueError, OverflowError):
        pass
    try:
        return parse_timestamp(text).astimezone(UTC).strftime("%Y-%m-%d")
    except ValueError:
        raise Invalid(
            f"{option} {text[:40]!r} is neither a day (2026-11-18), a month (2026-11) nor a duration (30d)"
        ) from None
