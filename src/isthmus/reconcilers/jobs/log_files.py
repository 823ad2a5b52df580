"""A job's output as files among its outputs, under the names that `sbatch --output` and `--error` would give them.

The log itself stays where it is. At the end of the run it is copied, in bounded pieces, into the files that
`spec.logFiles` names.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from isthmus.engines.base import FileSink, LogReader, Stream
from isthmus.errors import IsthmusError
from isthmus.resources.jobs import ARRAY_LABEL, INDEX_LABEL, Job
from isthmus.resources.trees import check_path

MAX_LOG_BYTES = 2**30
"""What is copied of one log: more is read with `isthmus logs`."""
_PIECE = 1 << 20
_PART = re.compile(r"%(\d{0,2})([%AajJNnstux])")


def expand(pattern: str, job: Job) -> str:
    """The name of the file, with what Slurm's patterns stand for; raises ValueError when it leaves the folder. Pure."""
    labels = job.metadata.labels or {}
    number = job.status.engine_id if (job.status.engine_id or "").isdigit() else None
    known: Mapping[str, str] = {
        "%": "%",
        "A": labels.get(ARRAY_LABEL) or number or job.name,
        "a": labels.get(INDEX_LABEL) or "0",
        "j": number or job.name,
        "J": number or job.name,
        "N": job.status.site or "",
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": job.status.member or "",
        "x": next((name for own in job.spec.engine_options.values() if (name := own.queue_name)), job.name),
    }

    def one(match: re.Match[str]) -> str:
        text = known[match[2]]
        return text.zfill(min(int(match[1] or 0), 10)) if text.isdigit() else text

    return check_path(_PART.sub(one, pattern).removeprefix("./"))


async def keep_logs(reader: LogReader | None, run_id: str, job: Job, sink: FileSink) -> list[str]:
    """Copy the log into the files that the job names; a sentence for each that could not be kept."""
    wanted = job.spec.log_files
    skipped: list[str] = []
    for stream, pattern in ((Stream.STDOUT, wanted and wanted.stdout), (Stream.STDERR, wanted and wanted.stderr)):
        if not pattern or reader is None:
            continue
        try:
            path = expand(pattern, job)
        except ValueError:
            skipped.append(f"the output is not kept as {pattern!r}: that is not a file below the job's folder.")
            continue
        try:
            with tempfile.NamedTemporaryFile() as copy:
                if not await _copy(reader, run_id, stream, copy):
                    skipped.append(
                        f"{path} holds the first {MAX_LOG_BYTES >> 20} MiB only; isthmus logs has all of it."
                    )
                await sink.add(path, Path(copy.name), 0o644)
        except IsthmusError as error:
            skipped.append(f"{path} was not kept: {error.message}")
    return skipped


async def _copy(reader: LogReader, run_id: str, stream: Stream, copy: IO[bytes]) -> bool:
    """Whether all of the log was copied."""
    offset = 0
    while piece := await reader.read_log(run_id, stream, offset, _PIECE):
        await asyncio.to_thread(copy.write, piece)
        offset += len(piece)
        if offset >= MAX_LOG_BYTES:
            break
    await asyncio.to_thread(copy.flush)
    return offset < MAX_LOG_BYTES
