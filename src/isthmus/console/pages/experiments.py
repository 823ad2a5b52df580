"""Experiments: the comparison as a table and as plots, up to date while it runs."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from isthmus.console.calling import in_tenant
from isthmus.console.charts import SIZES, bars_of, cell_name, lacks, measures_of, scatter_of, spread_of
from isthmus.console.index import ExperimentRow
from isthmus.console.rendering import render
from isthmus.console.visits import BASE, Visit, back_to
from isthmus.resources.frame.states import ExperimentPhase

from .jobs import PAGE, cursor_of

_SHOWN = 200


async def experiments(visit: Visit) -> Response:
    """One page of those that the caller may see, newest first."""
    mine, text = visit.tenants, visit.query.get("q", "").strip().lower()
    tenants = None if mine is None else {tenant for tenant in mine if visit.may("list", "experiments", tenant)}

    def wanted(row: ExperimentRow) -> bool:
        return (tenants is None or row.namespace in tenants) and text in row.name

    await visit.parts.live.start()
    before = cursor_of(visit)
    rows, further = await visit.parts.live.experiments.page(wanted, PAGE, before)
    kept = {"q": text}
    return render(
        visit,
        "experiments.html",
        rows=rows,
        kept=kept,
        older={**kept, "before": "~".join(further)} if further else None,
        newest=kept if before else None,
    )


async def experiment(visit: Visit) -> Response:
    """One of them."""
    namespace, name = _named(visit)
    found = await visit.asker.get(in_tenant(namespace, "experiments", name))
    status: dict[str, Any] = found.get("status") or {}
    cells: list[dict[str, Any]] = status.get("cells") or []
    measures, front = measures_of(cells), status.get("front") or []
    objective = (found["spec"].get("objective") or {}).get("value", "")
    wanted = (visit.query.get("measure", ""), objective, f"values.{objective}")
    measure = next((name for name in wanted if name in measures), next(iter(measures), ""))
    return render(
        visit,
        "experiment.html",
        experiment=found,
        status=status,
        over=ExperimentPhase(status.get("phase", "Pending")).terminal,
        cells=cells[:_SHOWN],
        left_out=max(0, len(cells) - _SHOWN),
        measures=measures,
        measure=measure,
        bars=[bars_of(cells, measure, size) for size in SIZES] if measure else [],
        scatters=[drawn for size in SIZES if (drawn := scatter_of(cells, front, size))],
        checked=any(cell.get("correct") is not None for cell in cells),
        exits=any(end != "0" for cell in cells for end in cell.get("exits") or ()),
        sizes=SIZES,
        lacks={measure: lacks(status, measure) for measure in ("energy", "cost")},
        cell_name=cell_name,
        spread_of=spread_of,
        may_change=visit.may("patch", "experiments", namespace, name),
    )


async def change(visit: Visit) -> Response:
    """Cancel it, or let it wait."""
    await visit.form()
    namespace, name = _named(visit)
    intent = {"cancel": "Cancel", "hold": "Hold", "release": "Run"}.get(visit.request.path_params["action"])
    if intent is None:
        raise HTTPException(404, "an experiment can be cancelled, held and released")
    await visit.asker.patch(in_tenant(namespace, "experiments", name), {"spec": {"intent": intent}})
    return back_to(f"{BASE}/experiments/{namespace}/{name}")


def _named(visit: Visit) -> tuple[str, str]:
    return visit.request.path_params["namespace"], visit.request.path_params["name"]


PAGES = (
    ("GET", "/experiments", experiments),
    ("GET", "/experiments/{namespace}/{name}", experiment),
    ("POST", "/experiments/{namespace}/{name}/{action}", change),
)
