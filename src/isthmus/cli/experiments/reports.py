"""The report of an experiment: one HTML file with its tables and plots, which asks nobody for anything. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from isthmus.client.requests import Object

from .comparisons import (
    cells_of,
    measures_used,
    names_of,
    spread_text,
    table_of,
    title_of,
)
from .report_plots import ReportBar, Spot, bars, scatter

MANY = 60
"""Bars in one plot; of more cells, the first are drawn and the table has them all."""

_STYLE = """
:root{color-scheme:light dark;--ink:#1f2933;--soft:#52606d;--paper:#fff;--line:#d9dee4;--bar:#4c78a8;--best:#2f8f5b;
--wrong:#c2410c;--zebra:#f5f7fa}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#a7b0ba;--paper:#14181d;--line:#333b44;--bar:#6ea3d8;
--best:#56c58a;--wrong:#f08a5d;--zebra:#1b2128}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:960px;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2.2rem}p{margin:.3rem 0}.soft{color:var(--soft)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.35rem .7rem;border-bottom:1px solid var(--line);white-space:nowrap}
tbody tr:nth-child(even){background:var(--zebra)}tr.wrong td{color:var(--wrong)}tr.best td{font-weight:600}
svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}
svg .name{fill:var(--ink)}.axis,.grid{stroke:var(--line)}.bar rect{fill:var(--bar)}.bar.best rect{fill:var(--best)}
.bar.wrong rect{fill:var(--wrong)}.whisker line{stroke:var(--ink);stroke-opacity:.65;stroke-width:1.4}
.spot circle{fill:var(--bar);stroke:var(--paper)}.spot.best circle{fill:var(--best)}
.spot.wrong circle{fill:var(--wrong)}
.front{fill:none;stroke:var(--best);stroke-width:1.6;stroke-dasharray:5 4}
pre{background:var(--zebra);padding:.8rem;overflow-x:auto;font-size:.82rem}
@media print{body{max-width:none}}
"""


def html_report(experiment: Object) -> str:
    """The whole page."""
    name = str(experiment["metadata"]["name"])
    status, cells = experiment.get("status") or {}, cells_of(experiment)
    parts = [f"<h1>{escape(name)}</h1>", *_summary(experiment, status)]
    parts += ["<h2>Comparison</h2>", _table(experiment, status)]
    if spots := _spots(cells, status):
        parts += ["<h2>Run time against energy</h2>", scatter("run time against energy", spots, "seconds", "joules")]
        parts.append(
            '<p class="soft">Medians; the crosses span the quartiles. Green: no other cell beats it in both.</p>'
        )
    for measure in measures_used(cells):
        drawn = _bars(cells, status, measure.field, measure.unit)
        parts += [f"<h2>{escape(measure.title.capitalize())}</h2>", bars(measure.title, drawn)]
    for value in names_of(cells, "values"):
        parts += [f"<h2>Reported: {escape(value)}</h2>", bars(value, _bars(cells, status, value, "", "values"))]
    if len(cells) > MANY:
        parts.append(f'<p class="soft">Plots show the first {MANY} of {len(cells)} cells.</p>')
    parts += _deviations(cells)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(name)}: comparison</title><style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )


def _summary(experiment: Object, status: Object) -> list[str]:
    runs, spec = status.get("runs") or {}, experiment.get("spec") or {}
    reported = f"{status.get('phase', 'Pending')}: {runs.get('succeeded', 0)} of {runs.get('total', 0)} runs succeeded"
    reported += f", {runs['failed']} failed" if runs.get("failed") else ""
    lines = [reported, str(status.get("message") or "")]
    template = spec.get("template") or {}
    if template.get("command"):
        lines.append("Command: " + " ".join(template["command"]))
    if objective := spec.get("objective"):
        lines.append(f"Objective: {objective.get('goal', '').lower()} {objective.get('value')}")
    if status.get("startedAt"):
        lines.append(f"From {status['startedAt']} to {status.get('finishedAt') or 'now'}")
    if any(cell.get("energySource") == "estimated" for cell in cells_of(experiment)):
        lines.append("Energy is estimated from power models, not measured.")
    return [
        f'<p class="{"" if number == 0 else "soft"}">{escape(line)}</p>' for number, line in enumerate(lines) if line
    ]


def _table(experiment: Object, status: Object) -> str:
    titles, rows = table_of(experiment)
    kinds = [_kind(cell, status) for cell in cells_of(experiment)]
    head = "".join(f'<th scope="col">{escape(title.lower())}</th>' for title in titles)
    body = "".join(
        f'<tr class="{kind}">{"".join(f"<td>{escape(value)}</td>" for value in row)}</tr>'
        for kind, row in zip(kinds, rows, strict=True)
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _kind(cell: Object, status: Object) -> str:
    if cell.get("correct") is False:
        return "wrong"
    return "best" if status.get("best") == cell["index"] else ""


def _bars(cells: Sequence[Object], status: Object, field: str, unit: str, below: str = "") -> list[ReportBar]:
    found = []
    for cell in cells[:MANY]:
        spread = ((cell.get(below) or {}) if below else cell).get(field)
        if spread:
            low, high = max(0.0, spread["low"]), max(0.0, spread["high"])
            text = spread_text(spread, unit)
            found.append(ReportBar(title_of(cell), max(0.0, spread["median"]), low, high, text, _kind(cell, status)))
    return found


def _spots(cells: Sequence[Object], status: Object) -> list[Spot]:
    front = set(status.get("front") or ())
    return [
        Spot(
            title_of(cell),
            time["median"],
            energy["median"],
            (time["low"], time["high"]),
            (energy["low"], energy["high"]),
            cell["index"] in front,
            cell.get("correct") is False,
        )
        for cell in cells
        if (time := cell.get("runTime")) and (energy := cell.get("energy"))
    ]


def _deviations(cells: Sequence[Object]) -> list[str]:
    lines = [f"{title_of(cell)}: {reported}" for cell in cells for reported in cell.get("deviations") or ()]
    if not lines:
        return []
    return ["<h2>Differences from the reference</h2>", f"<pre>{escape(chr(10).join(lines))}</pre>"]
