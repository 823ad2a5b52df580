"""What is said in calls: runs and their files one way, observations and inventories the other. Pure.

The control plane is strict with what an agent says: it is bounded, of the right form and possible, or it is left
out. A word of a newer version that this one does not know is read as unknown, and nothing is concluded from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from isthmus.engines.base import (
    Capabilities,
    EndReason,
    FileKind,
    FolderListing,
    Inventory,
    Observation,
    Run,
    RunState,
    RunUsage,
    WorkFile,
)
from isthmus.errors import EngineRefused, IsthmusError, NotFound, SiteUnavailable
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.sites import Capacity, SiteNode
from isthmus.resources.work.trees import TreeFile

PROTOCOL = 1
"""Grows when the two sides would no longer understand each other."""
RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[0-9]{1,9}")
BODY_LIMIT = 64 * 2**20
"""Bytes of a run with the list of its files."""
LONGEST_MESSAGE = 4096
_LONGEST_NAME = 253
_MANY = 64
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SIGNAL = re.compile(r"SIG[A-Z0-9+-]{1,20}")
_RUN: TypeAdapter[Run] = TypeAdapter(Run)
_FILES: TypeAdapter[list[TreeFile]] = TypeAdapter(list[TreeFile])
_CLASSES: TypeAdapter[list[DeviceClass]] = TypeAdapter(list[DeviceClass])
_CODES: Mapping[str, type[IsthmusError]] = {"EngineRefused": EngineRefused, "NotFound": NotFound}


# From the control plane


def encode_run(run: Run, files: Sequence[TreeFile] | None) -> dict[str, Any]:
    """A run and the list of its files. Sections of other engines and their queues stay behind."""
    sent = _RUN.dump_python(replace(run, options=(), after=()), mode="json")
    return {"run": sent, "files": None if files is None else _FILES.dump_python(list(files), mode="json")}


def parse_run(body: bytes) -> tuple[Run, list[TreeFile] | None]:
    """The same at the agent; raises EngineRefused."""
    try:
        found = _BODY.validate_json(body)
        files = found.get("files")
        return _RUN.validate_python(found.get("run")), None if files is None else _FILES.validate_python(files)
    except ValidationError as error:
        raise EngineRefused(f"The agent does not understand the run: {_first(error)}.") from None


_BODY: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def encode_classes(classes: Sequence[DeviceClass]) -> list[dict[str, Any]]:
    """Device classes."""
    return [one.to_json() for one in classes]


def parse_classes(body: bytes) -> list[DeviceClass]:
    """The same at the agent; raises EngineRefused."""
    try:
        return _CLASSES.validate_json(body)
    except ValidationError as error:
        raise EngineRefused(f"The agent does not understand a device class: {_first(error)}.") from None


# From the agent


def encode_error(error: Exception) -> dict[str, Any]:
    """Why a call failed."""
    if isinstance(error, IsthmusError):
        return {"code": error.code, "message": error.message[:LONGEST_MESSAGE]}
    return {"code": "InternalError", "message": f"{type(error).__name__}: {error}"[:LONGEST_MESSAGE]}


def error_of(reason: Mapping[str, Any]) -> IsthmusError:
    """The error that an agent answered with."""
    message = text(reason.get("message"), LONGEST_MESSAGE) or "the agent gave no reason"
    return _CODES.get(str(reason.get("code")), SiteUnavailable)(message)


def encode_observation(seen: Observation) -> dict[str, Any]:
    """What the agent's engine says of a run."""
    usage = seen.usage
    return {
        "state": seen.state.value,
        "engineId": seen.engine_id,
        "startedAt": _seconds(seen.started_at),
        "endedAt": _seconds(seen.ended_at),
        "reason": seen.reason.value if seen.reason else None,
        "message": seen.message[:LONGEST_MESSAGE],
        "exitCode": seen.exit_code,
        "signal": seen.signal,
        "usage": {name: getattr(usage, name) for name in RunUsage.__dataclass_fields__} if usage else None,
        "devices": {name: list(units) for name, units in seen.devices.items()},
        "image": seen.image,
    }


def parse_observation(said: Mapping[str, Any], now: datetime, offset: float) -> Observation:
    """The same as the control plane believes it. `offset`: seconds that the agent's clock is ahead."""
    state = _word(RunState, said.get("state")) or RunState.UNKNOWN
    started, ended = (_moment(said.get(name), now, offset) for name in ("startedAt", "endedAt"))
    if started and ended and ended < started:
        ended = started
    code = said.get("exitCode")
    return Observation(
        state,
        engine_id=text(said.get("engineId"), 200),
        started_at=started,
        ended_at=ended,
        reason=_word(EndReason, said.get("reason")),
        message=text(said.get("message"), LONGEST_MESSAGE),
        exit_code=code if isinstance(code, int) and not isinstance(code, bool) and 0 <= code <= 255 else None,
        signal=_matching(_SIGNAL, said.get("signal")),
        usage=_usage(said.get("usage")),
        devices=_units(said.get("devices")),
        image=text(said.get("image"), 200) or None,
    )


def encode_inventory(found: Inventory, able: Capabilities) -> dict[str, Any]:
    """What the agent's machine has, and what its engine can do."""
    return {
        "version": found.version,
        "capacity": found.capacity.to_json(),
        "node": found.nodes[0].name if found.nodes else "",
        "features": dict(found.features),
        "able": {
            name: getattr(able, name) for name in ("images", "image_files", "environments", "samples", "log_files")
        },
    }


def parse_inventory(said: Mapping[str, Any]) -> tuple[Inventory, Capabilities]:
    """The same as the control plane believes it: one machine."""
    raw = said.get("capacity")
    amounts = raw if isinstance(raw, dict) else {}
    devices = amounts.get("devices")
    counts = {
        name: count
        for name, count in list(devices.items() if isinstance(devices, dict) else ())[:_MANY]
        if _NAME.fullmatch(name) and isinstance(count, int) and 0 <= count <= 10_000
    }
    cpus = _number(amounts.get("cpus"), 100_000) or 0.0
    memory = int(_number(amounts.get("memoryBytes"), 2**60) or 0)
    node = SiteNode(
        name=text(said.get("node"), _LONGEST_NAME) or "machine", cpus=cpus, memory_bytes=memory, devices=counts
    )
    features = said.get("features")
    inventory = Inventory(
        version=text(said.get("version"), 100),
        capacity=Capacity(cpus=cpus, memory_bytes=memory, devices=dict(counts)),
        nodes=(node,),
        features={
            text(name, 100): text(value, 500)
            for name, value in list(features.items() if isinstance(features, dict) else ())[:_MANY]
        },
    )
    raw = said.get("able")
    able = raw if isinstance(raw, dict) else {}
    return inventory, Capabilities(
        images=able.get("images") is True,
        image_files=able.get("image_files") is True,
        environments=able.get("environments") is True,
        samples=able.get("samples") is True,
        log_files=able.get("log_files") is True,
    )


def encode_listing(found: FolderListing) -> dict[str, Any]:
    """What is in the folder of a run."""
    return {"files": [list(file) for file in found.files], "complete": found.complete}


def parse_listing(said: object, most: int) -> FolderListing:
    """The same as the control plane believes it."""
    found = said if isinstance(said, dict) else {}
    files = []
    raw = found.get("files")
    for entry in (raw if isinstance(raw, list) else [])[:most]:
        if not isinstance(entry, list) or len(entry) != 4:
            continue
        size, modified = _number(entry[2], 2**62), _number(entry[3], 2**40)
        kind = _word(FileKind, entry[1]) or FileKind.OTHER
        files.append(WorkFile(text(entry[0], 4096), kind, int(size or 0), modified or 0.0))
    return FolderListing(tuple(sorted(files)), found.get("complete") is True)


def parse_ids(data: object) -> set[str]:
    """Ids of runs, of those that could be one."""
    return {one for one in data if isinstance(one, str) and RUN_ID.fullmatch(one)} if isinstance(data, list) else set()


def text(value: object, longest: int) -> str:
    """A text of bounded length and without control characters; empty for anything else."""
    if not isinstance(value, str):
        return ""
    return "".join(c for c in value[:longest] if c.isprintable() or c in "\n\t").encode("utf-8", "replace").decode()


def whole(value: object, most: int) -> int:
    """A whole number from 0 to this; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else 0


def _seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None


def _moment(value: object, now: datetime, offset: float) -> datetime | None:
    """A time by our own clock; None for one that has not come yet."""
    seconds = _number(value, 2**40)
    if seconds is None:
        return None
    seconds -= offset
    if not 0 <= seconds <= (now + timedelta(minutes=1)).timestamp():
        return None
    return datetime.fromtimestamp(seconds, UTC)


def _usage(value: object) -> RunUsage | None:
    if not isinstance(value, dict):
        return None
    peak = _number(value.get("peak_memory_bytes"), 2**60)
    return RunUsage(
        elapsed_seconds=_number(value.get("elapsed_seconds"), 2**40),
        cpu_seconds=_number(value.get("cpu_seconds"), 2**50),
        peak_memory_bytes=None if peak is None else int(peak),
        energy_joules=_number(value.get("energy_joules"), 2**60),
        energy_source=text(value.get("energy_source"), 50) or None,
    )


def _units(value: object) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        return {}
    return {
        name: [text(unit, 200) for unit in units[:_MANY]]
        for name, units in list(value.items())[:_MANY]
        if _NAME.fullmatch(name) and isinstance(units, list)
    }


def _number(value: object, most: float) -> float | None:
    """A number from 0 to this; None for anything else, a whole number too large for a float among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= most else None


def _word(words: Any, value: object) -> Any:
    try:
        return words(value)
    except ValueError:
        return None


def _matching(pattern: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, found['loc']))[:200]}: {found['msg'][:200]}"
