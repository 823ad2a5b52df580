"""What a run has reported, looked for in the end of its output when it is over."""

from __future__ import annotations

from isthmus.engines.base import LogReader, Stream
from isthmus.errors import NotFound
from isthmus.telemetry.reports import Reader, Report, last_values

TAIL = 1024 * 1024
"""Bytes at the end of the output that are searched: a result is reported last, and an output may be endless."""


async def reported_values(reader: LogReader | None, run_id: str) -> Report | None:
    """The last value of each name; None if nothing was reported, or the log cannot be read."""
    if reader is None:
        return None
    try:
        size = await reader.log_size(run_id, Stream.STDOUT)
        if size == 0:
            return None
        offset, found, reports = max(0, size - TAIL), Reader(), list[Report]()
        while offset < size:
            data = await reader.read_log(run_id, Stream.STDOUT, offset, size - offset)
            if not data:
                break
            offset += len(data)
            reports += found.feed(data)
    except NotFound:
        return None
    return last_values([*reports, *found.finish()]) or None
