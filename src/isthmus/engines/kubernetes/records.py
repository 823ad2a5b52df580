"""How a run ended, as an annotation of its Job. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from isthmus._kit.clock import parse_timestamp
from isthmus.engines.base import EndReason, Observation, RunState, RunUsage


def dump(final: Observation) -> str:
    """The annotation's text."""
    reported = {name: value for name, value in asdict(final).items() if value not in (None, "", {})}
    for name in ("started_at", "ended_at"):
        if name in reported:
            reported[name] = reported[name].isoformat()
    return json.dumps(reported, sort_keys=True)


def load(text: str) -> Observation:
    """What was written."""
    reported: dict[str, Any] = json.loads(text)
    for name in ("started_at", "ended_at"):
        if name in reported:
            reported[name] = parse_timestamp(reported[name])
    reported["state"] = RunState(reported["state"])
    if "reason" in reported:
        reported["reason"] = EndReason(reported["reason"])
    if "usage" in reported:
        reported["usage"] = RunUsage(**reported["usage"])
    return Observation(**reported)
