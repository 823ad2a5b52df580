"""The record of a run: what the driver itself must find again. Plain JSON. Pure.

A record is made before anything is sent, is completed with Slurm's job id, and at the end holds how the run ended. It
belongs to the site's own account, so that no job can change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import orjson

from isthmus.engines.base import EndReason, Observation, RunState, RunUsage


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the driver knows of a run."""

    run_id: str
    user: str = ""
    sent_at: float = 0.0
    """When it was first meant to be sent, by our clock."""
    job: int | None = None
    """None: it is not known whether Slurm has it."""
    separate_streams: bool = False
    milli_cpus: int = 0
    devices: Mapping[str, str] = field(default_factory=dict)
    """Class and generic resource."""
    cancelled: bool = False
    held: bool = False
    """We asked Slurm to hold it. One that its owner holds on the cluster is not ours to release."""
    image: str | None = None
    """Digest of the image that it runs in."""
    final: Observation | None = None

    def sent(self, job: int) -> RunRecord:
        """Slurm has it."""
        return replace(self, job=job)

    def ended(self, final: Observation) -> RunRecord:
        """It is over."""
        return replace(self, final=final)


def unsent(record: RunRecord) -> RunRecord:
    """Slurm lost it: it is not known to have it any more."""
    return replace(record, job=None)


def dump(record: RunRecord) -> bytes:
    """As it is kept."""
    plain: dict[str, Any] = {
        "run": record.run_id,
        "user": record.user,
        "sentAt": record.sent_at,
        "job": record.job,
        "separate": record.separate_streams,
        "milliCpus": record.milli_cpus,
        "devices": dict(record.devices),
        "cancelled": record.cancelled,
        "held": record.held,
        **({"image": record.image} if record.image else {}),
        "final": None if record.final is None else _dump_end(record.final),
    }
    return orjson.dumps(plain)


def load(run_id: str, content: bytes) -> RunRecord:
    """As it was kept: of several lines the last one that is whole, since each says all that its writer knew.

    A writer that did not know of another one takes nothing back: what was cancelled stays so, and what ended.
    A record that a crash of the file system destroyed is read as that of a run never sent.
    """
    lines = [record for line in content.splitlines() if (record := _load_line(run_id, line)) is not None]
    if not lines:
        return RunRecord(run_id)
    cancelled = any(record.cancelled for record in lines)
    finals = (record.final for record in reversed(lines) if record.final is not None)
    return replace(lines[-1], cancelled=cancelled, final=next(finals, None))


def _load_line(run_id: str, line: bytes) -> RunRecord | None:
    try:
        plain = orjson.loads(line)
        return RunRecord(
            run_id=run_id,
            user=str(plain["user"]),
            sent_at=float(plain["sentAt"]),
            job=plain["job"],
            separate_streams=bool(plain["separate"]),
            milli_cpus=int(plain["milliCpus"]),
            devices=dict(plain["devices"]),
            cancelled=bool(plain["cancelled"]),
            held=bool(plain.get("held")),
            image=plain.get("image"),
            final=None if plain["final"] is None else _load_end(plain["final"], plain.get("image")),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _dump_end(end: Observation) -> dict[str, Any]:
    usage = end.usage
    return {
        "engineId": end.engine_id,
        "startedAt": end.started_at.isoformat() if end.started_at else None,
        "endedAt": end.ended_at.isoformat() if end.ended_at else None,
        "reason": end.reason.value if end.reason else None,
        "message": end.message,
        "exitCode": end.exit_code,
        "signal": end.signal,
        "devices": {name: list(units) for name, units in end.devices.items()},
        "usage": None
        if usage is None
        else [
            usage.elapsed_seconds,
            usage.cpu_seconds,
            usage.peak_memory_bytes,
            usage.energy_joules,
            usage.energy_source,
        ],
    }


def _load_end(plain: Mapping[str, Any], image: str | None) -> Observation:
    return Observation(
        RunState.ENDED,
        engine_id=plain["engineId"],
        started_at=datetime.fromisoformat(plain["startedAt"]) if plain["startedAt"] else None,
        ended_at=datetime.fromisoformat(plain["endedAt"]) if plain["endedAt"] else None,
        reason=EndReason(plain["reason"]) if plain["reason"] else None,
        message=plain["message"],
        exit_code=plain["exitCode"],
        signal=plain["signal"],
        usage=None if plain["usage"] is None else RunUsage(*plain["usage"]),
        devices={name: tuple(units) for name, units in plain["devices"].items()},
        image=image,
    )
