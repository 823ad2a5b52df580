"""A job in the hand, the same for both clients: what is known of it, and what can be asked of its server."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Self

from isthmus import errors

from . import flows, requests, resuming
from .flows import TERMINAL, Flow
from .operations import HERE, Operations, feed, operation
from .places import JOBS
from .requests import Object
from .resuming import Feed, LogCursor

TIME_LIMIT_CODE = 124
NEVER_RAN_CODE = 125
CANCELLED_CODE = 130


class JobFacts:
    """A job as it was last seen."""

    def __init__(self, obj: Object) -> None:
        self.object = obj

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace}/{self.name} {self.phase}>"

    def _repr_html_(self) -> str:
        """How notebooks show it."""
        import html  # only notebooks need it

        rows = {"Job": f"{self.namespace}/{self.name}", "Phase": self.phase, "Site": self.status.get("site") or "",
                "Message": self.message, "Started": self.status.get("startedAt") or "",
                "Finished": self.status.get("finishedAt") or "", "Exit code": self.exit_code}  # fmt: skip
        cells = (
            f"<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>"
            for name, value in rows.items()
            if value not in ("", None)
        )
        return f"<table>{''.join(cells)}</table>"

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """The tenant it belongs to."""
        return str(self.object["metadata"].get("namespace") or "")

    @property
    def uid(self) -> str:
        """What distinguishes it from an earlier job of the same name."""
        return str(self.object["metadata"].get("uid") or "")

    @property
    def status(self) -> dict[str, Any]:
        """What was seen of it."""
        return self.object.get("status") or {}

    @property
    def phase(self) -> str:
        """Where it is on its way: Pending, Placed, Queued, Running, Finishing, Succeeded, Failed or Cancelled."""
        return str(self.status.get("phase") or "Pending")

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in TERMINAL

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self.phase == "Succeeded"

    @property
    def message(self) -> str:
        """Why it is in its phase, in a sentence; empty when there is nothing to say."""
        return str(self.status.get("message") or "")

    @property
    def exit_code(self) -> int | None:
        """What running it here would have returned; None while it has not finished. See `exit_code_of`."""
        return exit_code_of(self.object) if self.finished else None


class JobOperations(JobFacts):
    """A job on a server."""

    def __init__(self, client: Operations[Any], obj: Object) -> None:
        super().__init__(obj)
        self._drive, self._feed = client._drive, client._feed

    @operation
    def refresh(self) -> Flow[Self]:
        """Look again; raises NotFound if the job is gone or another one has its name."""
        found = yield from flows.ask(requests.get(JOBS, self.namespace, self.name))
        if self.uid and found["metadata"].get("uid") != self.uid:
            raise errors.NotFound(f"job {self.name!r} was deleted, and another one has its name now")
        self.object = found
        return self

    @operation
    def wait(self, timeout: float | None = None, *, check: bool = False) -> Flow[Self]:
        """Wait until it has ended; raises TimeoutError if that takes longer than `timeout` seconds.

        With `check`, raises JobFailed if it did not succeed.
        """
        self.object = yield from resuming.wait(JOBS, self.namespace, self.name, timeout)
        if check and not self.succeeded:
            why = self.message or f"exit code {self.exit_code}"
            raise errors.JobFailed(
                f"job {self.name} {self.phase.lower()}: {why}; isthmus logs {self.name} shows its output"
            )
        return self

    @operation
    def text(self, stream: str | None = None) -> Flow[str]:
        """Its whole output so far as text; bytes that are not UTF-8 are replaced."""
        cursor = LogCursor(self.namespace, self.name, stream=stream)
        pieces = yield from resuming.gathered(resuming.read_log(cursor))
        return b"".join(pieces).decode(errors="replace")

    @operation
    def delete(self) -> Flow[None]:
        """Remove it and all that it left; a job that runs is cancelled first by the server."""
        yield from flows.ask(requests.delete(JOBS, self.namespace, self.name))

    @feed
    def logs(
        self, *, follow: bool = False, stream: str | None = None, tail: int | None = None, attempt: int | None = None
    ) -> Feed[bytes]:
        """Its output as bytes."""
        return resuming.read_log(
            LogCursor(self.namespace, self.name, follow=follow, stream=stream, tail=tail, attempt=attempt)
        )

    @operation
    def cancel(self) -> Flow[Self]:
        """Ask for its end."""
        self.object = yield from flows.intend("Cancel", self.namespace, self.name)
        return self

    @operation
    def outputs(self) -> Flow[Object]:
        """What it left."""
        return flows.outputs(self.namespace, self.name)

    @operation
    def files(self) -> Flow[Object]:
        """What is in its folder while it runs."""
        return flows.ask(requests.working_files(self.namespace, self.name))

    @feed
    def read_file(self, path: str, *, offset: int = 0, size: int | None = None) -> Feed[bytes]:
        """One file of its folder as it is now, in pieces."""
        return resuming.read_working_file(self.namespace, self.name, path, offset, size)

    @operation
    def download(self, folder: str | os.PathLike[str] = HERE) -> Flow[list[str]]:
        """Put what it left into a folder."""
        return flows.download(self.namespace, self.name, Path(folder))

    @operation
    def read_output(self, path: str) -> Flow[bytes]:
        """One file that it left."""
        return flows.read_output(self.namespace, self.name, path)


def exit_code_of(job: Object) -> int:
    """The exit code that stands for a finished job.

    Its own; 128 plus the number of the signal that ended it; 124 when it ran out of time (as timeout(1) does);
    130 when it was cancelled; 125 when it never ran.
    """
    status = job.get("status") or {}
    phase = status.get("phase")
    if phase == "Succeeded":
        return 0
    if phase == "Cancelled":
        return CANCELLED_CODE
    if status.get("reason") == "TimeLimit":
        return TIME_LIMIT_CODE
    if name := status.get("signal"):
        found = getattr(signal, str(name), None)
        return 128 + int(found) if isinstance(found, signal.Signals) else 1
    code = status.get("exitCode")
    if code is None:
        return 1 if status.get("array") else NEVER_RAN_CODE
    return int(code) or 1
