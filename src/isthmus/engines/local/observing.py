"""Reading from its folder what became of a run, and settling the end of one whose supervisor is gone."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime
from typing import Any

from isthmus.engines.base import EndReason, Observation, RunState, RunUsage
from isthmus.engines.collecting import remove_tree
from isthmus.images.manifests import is_digest

from . import cgroups
from .layout import RunFolder, read_record, write_record
from .processes import boot_id, is_alive, marked_with, send

_KILL_ROUNDS = 100
_MOST_PID = 2**31
_LARGEST, _LONGEST, _LAST_SECOND = 1e18, 4096, 253402300800
_LOST = {
    EndReason.NODE_LOST: "The machine was restarted while the job ran.",
    EndReason.SUPERVISOR_LOST: "The process that watched over the job was killed; the job was ended with it.",
    EndReason.CANCELLED: "Cancelled before it was started.",
}


def look(folder: RunFolder) -> Observation | None:
    """What its folder says of a run; None: there is none, or it was prepared and never started.

    Unknown: it was started, nobody watches over it, and no end is written. `look_and_settle` finds out.
    """
    if (ended := read_record(folder.ended)) is not None:
        return _over(folder, ended)
    started = read_record(folder.started)
    if started is None:
        return None
    if _lives(started):
        return Observation(
            RunState.RUNNING,
            str(started["pid"]),
            _moment(started.get("at")),
            devices=_units(folder),
            image=_image(folder),
        )
    # It may have ended between the two looks.
    if (ended := read_record(folder.ended)) is not None:
        return _over(folder, ended)
    return Observation(RunState.UNKNOWN, str(_whole(started.get("pid")) or ""), _moment(started.get("at")))


def look_and_settle(folder: RunFolder) -> Observation | None:
    """As `look`; the end of a run that nobody watches over any more is written. May take a moment."""
    seen = look(folder)
    if seen is None or seen.state is not RunState.UNKNOWN:
        return seen
    same_boot = (read_record(folder.started) or {}).get("boot") == boot_id()
    # If it cannot be settled, somebody else is just about it.
    settle(folder, EndReason.SUPERVISOR_LOST if same_boot else EndReason.NODE_LOST)
    return look(folder)


def is_over(folder: RunFolder) -> bool:
    """Whether nothing of the run can be running any more. May take a moment."""
    seen = look_and_settle(folder)
    return seen is None or seen.state is RunState.ENDED


def settle(folder: RunFolder, reason: EndReason) -> bool:
    """Write the end of a run that nobody watches over; whether there is an end now."""
    lock = folder.lock()
    if lock is None:
        return False
    try:
        if not folder.ended.exists():
            _end_remains(folder)
            record = {"at": time.time(), "reason": reason.value, "message": _LOST[reason]}
            write_record(folder.ended, record)
        return True
    finally:
        os.close(lock)


def _end_remains(folder: RunFolder) -> None:
    """The kernel ends the job with its supervisor; descendants outside a sandbox may be left."""
    spec = read_record(folder.spec) or {}
    if spec.get("cgroup"):
        group = cgroups.Group.from_json(spec["cgroup"])
        for _ in range(_KILL_ROUNDS):
            cgroups.kill(group)
            if not cgroups.members(group):
                break
            time.sleep(0.01)
        cgroups.remove(group)
    if spec and not spec.get("sandboxed"):
        send(marked_with(f"ISTHMUS_RUN_ID={folder.run_id}".encode()), signal.SIGKILL)


def free_work(folder: RunFolder) -> None:
    """Remove the job's own folders, and the launcher with its environment."""
    for path in (folder.work, folder.tmp, folder.launch):
        remove_tree(path)
    spec = read_record(folder.spec) or {}
    if spec.get("cgroup"):
        cgroups.remove(cgroups.Group.from_json(spec["cgroup"]))


def process_of(started: dict[str, Any]) -> tuple[int, int] | None:
    """The supervisor that a record names, by its number and the moment of its start; None if it names none."""
    pid, ticks = started.get("pid"), started.get("ticks")
    if isinstance(pid, int) and isinstance(ticks, int) and 0 < pid < _MOST_PID:
        return pid, ticks
    return None


def _lives(started: dict[str, Any]) -> bool:
    process = process_of(started)
    return process is not None and started.get("boot") == boot_id() and is_alive(*process)


def _over(folder: RunFolder, ended: dict[str, Any]) -> Observation:
    """The end, as the record says it. Where accounts are shared a job can write it: only what can be is believed."""
    started = read_record(folder.started) or {}
    return Observation(
        RunState.ENDED,
        str(_whole(started.get("pid")) or ""),
        _moment(started.get("at")),
        _moment(ended.get("at")),
        _reason(ended.get("reason")),
        _text(ended.get("message")) or "",
        _whole(ended.get("exit_code")),
        _text(ended.get("signal")),
        _usage(ended.get("usage")),
        _units(folder),
        _image(folder),
    )


def _reason(value: Any) -> EndReason:
    try:
        return EndReason(value)
    except ValueError:  # an end that a power loss made unreadable was an end of the machine too
        return EndReason.NODE_LOST


def _usage(value: Any) -> RunUsage | None:
    if not isinstance(value, dict) or not value:
        return None
    return RunUsage(
        elapsed_seconds=_number(value.get("elapsed_seconds")),
        cpu_seconds=_number(value.get("cpu_seconds")),
        peak_memory_bytes=_whole(value.get("peak_memory_bytes")),
        energy_joules=_number(value.get("energy_joules")),
        energy_source=_text(value.get("energy_source")),
    )


def _units(folder: RunFolder) -> dict[str, list[str]]:
    """Which units of each class it was given."""
    devices = (read_record(folder.spec) or {}).get("devices", {})
    if not isinstance(devices, dict):
        return {}
    return {name: [str(unit) for unit in units] for name, units in devices.items() if isinstance(units, list)}


def _image(folder: RunFolder) -> str | None:
    """The image that it runs in."""
    image = (read_record(folder.spec) or {}).get("image")
    return image if isinstance(image, str) and is_digest(image) else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _LARGEST else None  # also no NaN: it compares with nothing


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and _number(value) is not None else None


def _text(value: Any) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) else None


def _moment(seconds: Any) -> datetime | None:
    if _number(seconds) is None or not 0 <= seconds < _LAST_SECOND:
        return None
    return datetime.fromtimestamp(seconds, UTC)
