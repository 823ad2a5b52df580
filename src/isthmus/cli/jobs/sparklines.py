"""Series as sparklines. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.cli.tables import size
from isthmus.client.requests import Object

_MARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The values over time, averaged to the width, from zero (or the lowest, if that is below) to the highest."""
    if not values:
        return ""
    count = min(width, len(values))
    means = []
    for n in range(count):
        part = values[n * len(values) // count : (n + 1) * len(values) // count] or values[-1:]
        means.append(sum(part) / len(part))
    low, high = min(0.0, *means), max(means)
    span = (high - low) or 1.0
    return "".join(_MARKS[min(7, int((value - low) / span * 7.999))] for value in means)


def lines(metrics: Object, width: int = 40) -> list[tuple[str, str]]:
    """A title and a sparkline with the newest value, for every series."""
    found = []
    for series in metrics.get("series") or ():
        values = [float(value) for _, value in series["points"]]
        if values:
            title = str(series["name"]).removeprefix("reported.")
            reported = _amount(values[-1], str(series.get("unit") or ""))
            peak = _amount(max(values), str(series.get("unit") or ""))
            source = " (estimated)" if series.get("source") == "estimated" else ""
            found.append((title, f"{sparkline(values, width)}  {reported}, at most {peak}{source}"))
    return found


def newest(metrics: Object, width: int) -> dict[str, tuple[str, ...]]:
    """Of every series the newest value, with its curve where there is width for one; ~ is an estimate."""
    found: dict[str, tuple[str, ...]] = {}
    for series in metrics.get("series") or ():
        if values := [float(value) for _, value in series["points"]]:
            about = "~" if series.get("source") == "estimated" else ""
            amount = about + _amount(values[-1], str(series.get("unit") or ""))
            found[str(series["name"])] = (f"{amount:<11}", sparkline(values, width)) if width else (amount,)
    return found


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return size(value)
    if unit == "fraction":
        return f"{value:.0%}"
    if unit == "cores":
        return f"{value:.2f} cores"
    return f"{value:.3g}{' W' if unit == 'watts' else ''}"


def merged(before: Object | None, new: Object) -> Object:
    """What is known after another answer: appended, or begun anew."""
    if before is None or new.get("reset"):
        return new
    known = {series["name"]: series for series in before.get("series") or ()}
    for series in new.get("series") or ():
        old = known.get(series["name"])
        known[series["name"]] = {**series, "points": [*(old["points"] if old else ()), *series["points"]]}
    return {**new, "series": list(known.values())}
