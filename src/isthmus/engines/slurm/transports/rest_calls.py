"""slurmrestd's calls: each a small class with its request and a typed reader of the answer.

Newer versions say errors with status 200, older ones with 500: the body is read in either case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from isthmus.engines.slurm.batch.submissions import Submission
from isthmus.engines.slurm.facts import Accounted, SlurmJob, SlurmNode, SlurmPartition
from isthmus.errors import EngineRefused, SiteUnavailable

from . import rest_documents
from .base import SUBMISSION, failure

T_co = TypeVar("T_co", covariant=True)
_OVER = ("invalid job id", "already completing or completed", "already finished")
_NOT_WAITING = (*_OVER, "job is no longer pending", "already started", "requested operation is presently disabled")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of slurmrestd."""

    status: int
    body: Mapping[str, Any]

    @property
    def errors(self) -> list[tuple[int, str]]:
        """What went wrong."""
        return rest_documents.errors(self.body)


class RestCall(Protocol, Generic[T_co]):
    """One call."""

    @property
    def method(self) -> str:
        """GET, POST or DELETE."""
        ...

    def path(self, version: int) -> str:
        """Below the address."""
        ...

    def body(self, version: int) -> Mapping[str, Any] | None:
        """What is sent."""
        ...

    def read(self, reply: Reply) -> T_co:
        """What was answered; raises SiteUnavailable, EngineRefused."""
        ...


class _Get:
    """A question without a body."""

    method = "GET"

    def body(self, version: int) -> Mapping[str, Any] | None:
        """Nothing is sent."""
        del version
        return None


def _check(what: str, reply: Reply) -> None:
    if reply.status in (401, 511) or any(code == rest_documents.NOT_AUTHENTICATED for code, _ in reply.errors):
        raise SiteUnavailable(
            f"slurmrestd does not accept our token ({what}); look at keyFile or tokenFile of the site."
        )
    if reply.errors or reply.status >= 400:
        said = "; ".join(text for _, text in reply.errors) or f"status {reply.status}"
        raise SiteUnavailable(f"slurmrestd could not answer ({what}): {said[:500]}")


@dataclass(frozen=True, slots=True)
class ListJobs(_Get):
    """Every job, with those that ended lately."""

    def path(self, version: int) -> str:
        """Below the address."""
        return f"/slurm/v0.0.{version}/jobs"

    def read(self, reply: Reply) -> list[SlurmJob]:
        """The jobs."""
        _check("jobs", reply)
        try:
            return rest_documents.jobs(reply.body)
        except ValueError as error:
            raise SiteUnavailable(f"slurmrestd's answer cannot be used: {error}.") from None


@dataclass(frozen=True, slots=True)
class ShowJob(_Get):
    """One job."""

    number: int

    def path(self, version: int) -> str:
        """Below the address."""
        return f"/slurm/v0.0.{version}/job/{self.number}"

    def read(self, reply: Reply) -> SlurmJob | None:
        """The job; None only if Slurm said that there is none."""
        if any(code == rest_documents.NO_SUCH_JOB or "invalid job id" in text.lower() for code, text in reply.errors):
            return None
        _check("job", reply)
        found = rest_documents.jobs(reply.body)
        return found[0] if found else None


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """A submission."""

    wanted: Submission
    method = "POST"

    def path(self, version: int) -> str:
        """Below the address."""
        return f"/slurm/v0.0.{version}/job/submit"

    def body(self, version: int) -> Mapping[str, Any]:
        """What is sent."""
        return rest_documents.submission(self.wanted, version)

    def read(self, reply: Reply) -> int:
        """The job's number."""
        number = rest_documents.number(reply.body.get("job_id"))
        if number:
            return int(number)
        if reply.errors and reply.status != 401:
            raise failure(SUBMISSION, "; ".join(text for _, text in reply.errors))
        _check("submit", reply)
        raise EngineRefused("slurmrestd neither took the job nor said why.")


@dataclass(frozen=True, slots=True)
class CancelJob:
    """The end of a job."""

    number: int
    method = "DELETE"

    def path(self, version: int) -> str:
        """Below the address."""
        return f"/slurm/v0.0.{version}/job/{self.number}"

    def body(self, version: int) -> Mapping[str, Any] | None:
        """Nothing is sent."""
        del version
        return None

    def read(self, reply: Reply) -> None:
        """One that is already over is no error."""
        if any(sign in text.lower() for _, text in reply.errors for sign in _OVER):
            return
        if any(code == rest_documents.NO_SUCH_JOB for code, _ in reply.errors):
            return
        _check("cancel", reply)


@dataclass(frozen=True, slots=True)
class HoldJob:
    """Holding and releasing."""

    number: int
    held: bool
    method = "POST"

    def path(self, version: int) -> str:
        """Below the address."""
        return f"/slurm/v0.0.{version}/job/{self.number}"

    def body(self, version: int) -> Mapping[str, Any]:
        """What is sent."""
        del version
        return {"hold": self.held}

    def read(self, reply: Reply) -> None:
        """What no longer waits needs neither."""
        if any(sign in text.lower() for _, text in reply.errors for sign in _NOT_WAITING):
            return
        if any(code == rest_documents.NO_SUCH_JOB for code, _ in reply.errors):
            return
        _check("hold", reply)


@dataclass(frozen=True, slots=True)
class ReadAccounting(_Get):
    """One job in the accounting."""

    number: int

    def path(self, version: int) -> str:
        """Below the address. A number that is none kills some slurmrestd: ours always is one."""
        return f"/slurmdb/v0.0.{version}/job/{self.number}"

    def read(self, reply: Reply) -> list[Accounted]:
        """The job, and older ones of the same number."""
        if any("nothing found" in text.lower() or "no such" in text.lower() for _, text in reply.errors):
            return []
        _check("accounting", reply)
        return rest_documents.accounted(reply.body)


@dataclass(frozen=True, slots=True)
class SearchAccounting(_Get):
    """Every job of some accounts that was there since a moment; of none: of everybody."""

    users: Sequence[str]
    since: datetime

    def path(self, version: int) -> str:
        """Below the address."""
        # The only form of a time that every version reads; the oldest knows no filter by user.
        begin = f"start_time=uts{int(self.since.timestamp())}"
        named = self.users and version > rest_documents.PLAIN_NUMBERS_UNTIL
        users = f"users={','.join(self.users)}&" if named else ""
        return f"/slurmdb/v0.0.{version}/jobs?{users}{begin}"

    def read(self, reply: Reply) -> list[Accounted]:
        """The jobs."""
        if any("nothing found" in text.lower() for _, text in reply.errors):
            return []
        _check("accounting", reply)
        return rest_documents.accounted(reply.body)


@dataclass(frozen=True, slots=True)
class ListNodes(_Get):
    """Every node: what is said of a single one may be old."""

    def path(self, version: int) -> str:
        """Below the address."""
        return f"/slurm/v0.0.{version}/nodes"

    def read(self, reply: Reply) -> list[SlurmNode]:
        """The nodes."""
        _check("nodes", reply)
        if not isinstance(reply.body.get("nodes"), list):
            raise SiteUnavailable("slurmrestd's answer cannot be used: it has no list of nodes.")
        return rest_documents.nodes(reply.body)


@dataclass(frozen=True, slots=True)
class ListPartitions(_Get):
    """Every partition."""

    def path(self, version: int) -> str:
        """Below the address."""
        return f"/slurm/v0.0.{version}/partitions"

    def read(self, reply: Reply) -> list[SlurmPartition]:
        """The partitions."""
        _check("partitions", reply)
        return rest_documents.partitions(reply.body)


@dataclass(frozen=True, slots=True)
class Ping(_Get):
    """Which version of Slurm this is."""

    def path(self, version: int) -> str:
        """Below the address."""
        return f"/slurm/v0.0.{version}/ping"

    def read(self, reply: Reply) -> str:
        """Such as 22.05.8."""
        _check("ping", reply)
        meta = reply.body.get("meta") or {}
        about = meta.get("slurm") or meta.get("Slurm") or {}
        return str(about.get("release") or "")
