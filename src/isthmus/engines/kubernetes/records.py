"""How a run ended, as an annotation of its Job. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from isthmus._kit.clock import parse_timestamp
from isthmus.engines.base import EndReason, Observation, RunState, RunUsage


def dump(final: Observation) -> str:
    """The annotation's text."""
    told = {name: value for name, value in asdict(final).items() if value not in (None, "", {})}
    for name in ("started_at", "ended_at"):
        if name in told:
            told[name] = told[name].isoformat()
    return json.dumps(told, sort_keys=True)


def load(text: str) -> Observation:
    """What was written."""
    told: dict[str, Any] = json.loads(text)
    for name in ("started_at", "ended_at"):
        if name in told:
            told[name] = parse_timestamp(told[name])
    told["state"] = RunState(told["state"])
    if "reason" in told:
        told["reason"] = EndReason(told["reason"])
    if "usage" in told:
        told["usage"] = RunUsage(**told["usage"])
    return Observation(**told)
