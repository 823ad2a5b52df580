"""Ending all that runs at a local site whose engine is gone, with the keeper: the machine as if switched off."""

from __future__ import annotations

import asyncio
from pathlib import Path

from isthmus.engines.base import RunState

from .driver import LocalEngine
from .layout import Layout
from .settings import LocalSettings

_LOOK_SECONDS = 0.05
_LAST_SECONDS = 60.0


def going_runs(root: Path) -> list[str]:
    """Runs that have not ended, as the files say; nothing is opened for it."""
    layout = Layout(root)
    if not layout.runs.exists():
        return []
    return [run_id for run_id in layout.run_ids() if not layout.run(run_id).ended.exists()]


async def end_runs(root: Path, *, grace: float = 0.0) -> None:
    """End them, and the keeper. Whoever has the site open must have let go of it; raises SiteUnavailable."""
    engine = LocalEngine(LocalSettings(root=root))
    await engine.open()
    try:
        going = going_runs(root)
        for run_id in going:
            await engine.cancel(run_id, grace=grace)
        for _ in range(int(_LAST_SECONDS / _LOOK_SECONDS)):
            seen = [await engine.observe(run_id) for run_id in going]
            if all(one is None or one.state is RunState.ENDED for one in seen):
                break
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        await engine.close()
    await engine.stop_keeper()
