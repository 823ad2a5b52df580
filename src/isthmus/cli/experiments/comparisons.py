"""An experiment's comparison as rows: for the table on a terminal, for CSV, for the report. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from isthmus._kit.reasons import read_reasons
from isthmus.cli.tables import size
from isthmus.client.requests import Object

_PLACES = ("device", "site", "image")


class Measure(NamedTuple):
    """One thing that is measured: its field, heading and unit."""

    field: str
    title: str
    unit: str


MEASURES = (
    Measure("runTime", "run time", "s"),
    Measure("energy", "energy", "J"),
    Measure("energyDelay", "energy-delay", "Js"),
    Measure("peakMemory", "peak memory", "B"),
    Measure("cost", "cost", ""),
)


def cells_of(experiment: Object) -> list[Object]:
    """Its cells."""
    return list((experiment.get("status") or {}).get("cells") or ())


def places_used(cells: Sequence[Object]) -> list[str]:
    """Which of device, site and image distinguish the cells."""
    return [place for place in _PLACES if any(cell.get(place) for cell in cells)]


def names_of(cells: Sequence[Object], field: str) -> list[str]:
    """Every parameter, or every reported value, in the order they come."""
    return list(dict.fromkeys(name for cell in cells for name in cell.get(field) or {}))


def measures_used(cells: Sequence[Object]) -> list[Measure]:
    """What any cell has a number of."""
    return [measure for measure in MEASURES if any(cell.get(measure.field) for cell in cells)]


def title_of(cell: Object) -> str:
    """What a cell is called in plots: where, and with which parameters."""
    where = [str(cell[place]) for place in _PLACES if cell.get(place)]
    point = [f"{name}={shorter(value)}" for name, value in (cell.get("parameters") or {}).items()]
    return " ".join([*where, *point]) or f"cell {cell.get('index', 0)}"


def shorter(text: str) -> str:
    """A number with as many digits as anybody reads; anything else as it is."""
    try:
        return f"{float(text):.4g}" if len(text) > 8 else text
    except ValueError:
        return text


def amount(value: float, unit: str) -> str:
    """A number with its unit."""
    if unit == "B":
        return size(value)
    return f"{value:.4g}{' ' if unit else ''}{unit}"


def spread_text(spread: Object | None, unit: str) -> str:
    """`0.48 s ±0.02`: the median, and half the distance between the quartiles."""
    if not spread:
        return ""
    half = (spread["high"] - spread["low"]) / 2
    reported = amount(spread["median"], unit)
    if spread["count"] < 2 or half == 0:
        return reported
    rough = f"{half:.0f}" if half >= 100 else f"{half:.2g}"
    return f"{reported} ±{amount(half, unit) if unit == 'B' else rough}"


def table_of(experiment: Object) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of what a person compares. Columns that say nothing are left out."""
    cells, status = cells_of(experiment), experiment.get("status") or {}
    places, points, values = places_used(cells), names_of(cells, "parameters"), names_of(cells, "values")
    measures = measures_used(cells)
    checked = any(cell.get("correct") is not None for cell in cells)
    titles = ["CELL", *(p.upper() for p in places), *points, "STATE", "RUNS"]
    titles += [measure.title.upper() for measure in measures] + values + (["CORRECT"] if checked else []) + ["NOTE"]
    rows = []
    for cell in cells:
        runs = cell.get("runs") or {}
        row = [str(cell["index"]), *(str(cell.get(place) or "") for place in places)]
        row += [shorter((cell.get("parameters") or {}).get(name, "")) for name in points]
        row += [str(cell.get("state")), f"{runs.get('succeeded', 0)}/{runs.get('total', 0)}"]
        row += [spread_text(cell.get(measure.field), measure.unit) for measure in measures]
        row += [spread_text((cell.get("values") or {}).get(name), "") for name in values]
        row += [{True: "yes", False: "NO"}.get(cell.get("correct"), "")] if checked else []  # type: ignore[arg-type]
        rows.append([*row, _note(cell, status)])
    return titles, rows


def _note(cell: Object, status: Object) -> str:
    reported = ["best"] if status.get("best") == cell["index"] else []
    reported += ["front"] if cell["index"] in (status.get("front") or ()) else []
    reported += ["reference"] if status.get("reference") == cell["index"] else []
    reported += list(cell.get("deviations") or ())[:1] or ([str(cell["message"])] if cell.get("message") else [])
    return "; ".join(reported)


def csv_of(experiment: Object) -> str:
    """Every number of every cell, with plain headings: `runTime.median`, `values.accuracy.low`."""
    cells = cells_of(experiment)
    places, points, values = places_used(cells), names_of(cells, "parameters"), names_of(cells, "values")
    parts = ("median", "low", "high", "min", "max", "count")
    heads = ["index", *places, *(f"parameters.{p}" for p in points), "state", "succeeded", "failed", "correct"]
    heads += [f"{measure.field}.{part}" for measure in MEASURES for part in parts] + ["energySource"]
    heads += [f"values.{name}.{part}" for name in values for part in parts] + ["objective", "jobs"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    for cell in cells:
        runs = cell.get("runs") or {}
        row = [cell["index"], *(cell.get(place, "") for place in places)]
        row += [(cell.get("parameters") or {}).get(name, "") for name in points]
        row += [cell.get("state"), runs.get("succeeded", 0), runs.get("failed", 0), _yes(cell.get("correct"))]
        row += [(cell.get(measure.field) or {}).get(part, "") for measure in MEASURES for part in parts]
        row += [cell.get("energySource", "")]
        row += [((cell.get("values") or {}).get(name) or {}).get(part, "") for name in values for part in parts]
        writer.writerow([*(_tame(value) for value in row), cell.get("objective", ""), " ".join(cell.get("jobs") or ())])
    return out.getvalue()


def _tame(value: object) -> object:
    """A text that a spreadsheet would take for a formula gets a quote before it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "@") else value


def _yes(value: bool | None) -> str:
    return "" if value is None else "true" if value else "false"


def went_well(experiment: Object) -> bool:
    """Whether everything ran and nothing is wrong."""
    status = experiment.get("status") or {}
    wrong = any(cell.get("correct") is False for cell in cells_of(experiment))
    return status.get("phase") == "Succeeded" and not (status.get("runs") or {}).get("failed") and not wrong


def progress_line(experiment: Object) -> str:
    """How far it has come, in a line."""
    runs = (experiment.get("status") or {}).get("runs") or {}
    ended = runs.get("succeeded", 0) + runs.get("failed", 0) + runs.get("cancelled", 0)
    parts = [f"{ended} of {runs.get('total', 0)} runs", f"{runs.get('active', 0)} active"]
    parts += [f"{runs['failed']} failed"] if runs.get("failed") else []
    waits = next((c["message"] for c in _running(experiment) if c.get("message") and not runs.get("succeeded")), "")
    return ", ".join(parts) + (f" ({read_reasons(waits).headline})" if waits else "")


def _running(experiment: Object) -> Iterable[Object]:
    return (cell for cell in cells_of(experiment) if cell.get("state") == "Running")
