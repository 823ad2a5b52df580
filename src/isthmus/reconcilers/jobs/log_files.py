"""A job's output as files among its outputs, under the names that `sbatch --output` and `--error` would give them.

Most engines have the log in the job's folder as well, under these names, while it runs: it is collected from there like
any other file, as the job left it. Where the log is no file of the job's machine (Kubernetes), it is copied after the
end, in bounded pieces.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from isthmus.engines.base import FileSink, LogReader, Stream
from isthmus.engines.batch_scripts import NAME, expand, filled, number_of, parts
from isthmus.errors import IsthmusError
from isthmus.resources.jobs import INDEX_LABEL, Job
from isthmus.resources.work.trees import check_path

from .runs import array_number, log_files_of

MAX_LOG_BYTES = 2**30
"""What is copied of one log: more is read with `isthmus logs`."""
_PIECE = 1 << 20
_WILD = re.compile(r"[*?\[]")


def log_patterns(job: Job, *, numbers: bool) -> list[str]:
    """Patterns of the files that the log was to be seen as; who ran it and where, the engine alone knows.

    With `numbers` the engine's id is the job's number. Names that leave the folder have no pattern. Pure.
    """
    known = _known(job, number=job.status.engine_id if numbers else None)

    def value(letter: str, width: int) -> str:
        return "*" if letter in "uN" else _literal(filled(known[letter], width))

    return [path for pattern in log_files_of(job.spec).values() if (path := _path(job, pattern, value, _literal))]


def _literal(text: str) -> str:
    return _WILD.sub(lambda match: f"[{match[0]}]", text)


def file_name(job: Job, pattern: str) -> str | None:
    """The name of the file where the log is copied; None when it leaves the folder. Pure."""
    known = _known(job)
    return _path(job, pattern, lambda letter, width: filled(known[letter], width), str)


def _known(job: Job, number: str | None = None) -> dict[str, str]:
    index = (job.metadata.labels or {}).get(INDEX_LABEL)
    named = next((variable.value for variable in job.spec.env if variable.name == NAME), job.name)
    return parts(
        number or str(number_of(job.identity)),
        named,
        index=int(index) if index else None,
        array=str(array_number(job)) if index else "",
        user=job.status.member or "",
        node=job.status.site or "",
    )


def _path(job: Job, pattern: str, value: Callable[[str, int], str], literal: Callable[[str], str]) -> str | None:
    words = [word for word in expand(pattern, value, literal).split("/") if word not in ("", ".")]
    try:
        return check_path(
            "/".join([*([job.spec.working_dir] if job.spec.working_dir not in (None, ".") else []), *words])
        )
    except ValueError:
        return None


async def keep_logs(reader: LogReader | None, run_id: str, job: Job, sink: FileSink) -> list[str]:
    """Copy the log into the files that the job names; a sentence for each that could not be kept."""
    skipped: list[str] = []
    if reader is None:
        return skipped
    for stream, pattern in log_files_of(job.spec).items():
        if (path := file_name(job, pattern)) is None:
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
