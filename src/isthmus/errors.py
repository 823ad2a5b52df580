"""The one tree of errors.

Every error that Isthmus raises on purpose is an `IsthmusError`. It carries

- `code`: a stable word that programs may test for; it never changes once released;
- a message: one sentence that says what is wrong and where, and one that says what to do next;
- `transient`: whether the same call may succeed later with nothing changed;
- `causes`: for bad input, one entry per field.

```
IsthmusError
├── Invalid            the input is wrong: names the fields and the remedy
│   └── TooLarge       … because it is larger than the limit
├── Unauthenticated    nobody, or a token that is unknown, expired or revoked
├── Forbidden          somebody, but not allowed to do this
├── NotFound           there is no such thing (or it is not yours to know)
├── Conflict           somebody else changed it since it was read
│   └── AlreadyExists  the name is taken
├── Expired            a watch or a continued list starts too far in the past: list again
├── Unavailable        (transient) a part that is needed does not answer just now
│   ├── StoreUnavailable   the store is locked, full or unreachable
│   ├── SiteUnavailable    the site's engine did not answer: nothing is known, nothing is assumed
│   │   └── Superseded         another control plane has opened the site since: open it anew, if it is still ours
│   ├── HostUnavailable    a machine's BMC did not answer: nothing is known, nothing is assumed
│   ├── PortClosed         nothing listens on that port of the job, or not yet
│   └── Unreachable        the server could not be reached at all: nothing was sent
├── EngineRefused      the engine answered, and its answer is no
├── HostRefused        a machine's BMC answered, and its answer is no or cannot be believed
├── JobFailed          a job that was waited for did not succeed (Python: `wait(check=True)`)
└── Misconfigured      a setting or the machine lacks something: says what to install or set
```

How each becomes an HTTP answer is decided in one place, `api/responses.py`; how each becomes an exit code
in `cli/failures.py`.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple


class Cause(NamedTuple):
    """One field that is wrong: where, what, and (in the message) the remedy."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class IsthmusError(Exception):
    """The root of all errors raised on purpose."""

    code: ClassVar[str] = "InternalError"
    transient: ClassVar[bool] = False

    def __init__(self, message: str, *, causes: tuple[Cause, ...] = (), retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.causes = causes
        self.retry_after = retry_after


class Invalid(IsthmusError):
    """The input is wrong."""

    code = "Invalid"


def invalid_field(field: str, message: str) -> Invalid:
    """The refusal of one field."""
    return Invalid(f"{field}: {message}", causes=(Cause(field, message),))


class TooLarge(Invalid):
    """The input is larger than the limit."""

    code = "RequestEntityTooLarge"


class Unauthenticated(IsthmusError):
    """No token, or one that is unknown, expired or revoked."""

    code = "Unauthorized"


class Forbidden(IsthmusError):
    """The caller is known but may not do this."""

    code = "Forbidden"


class NotFound(IsthmusError):
    """There is no such thing, or it is not the caller's to know. Names the object, where one is missing."""

    code = "NotFound"

    def __init__(
        self,
        message: str,
        *,
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
        kind: str = "",
        namespace: str = "",
        name: str = "",
    ) -> None:
        super().__init__(message, causes=causes, retry_after=retry_after)
        self.kind, self.namespace, self.name = kind, namespace, name


class Conflict(IsthmusError):
    """The object changed since it was read."""

    code = "Conflict"


class AlreadyExists(Conflict):
    """The name is taken."""

    code = "AlreadyExists"


class Expired(IsthmusError):
    """The version asked for is no longer kept."""

    code = "Expired"


class Unavailable(IsthmusError):
    """A part that is needed does not answer just now."""

    code = "ServiceUnavailable"
    transient = True


class StoreUnavailable(Unavailable):
    """The store is locked, full or unreachable."""

    code = "StoreUnavailable"


class SiteUnavailable(Unavailable):
    """A site's engine did not answer: nothing is known."""

    code = "SiteUnavailable"


class Superseded(SiteUnavailable):
    """Another control plane has opened the site since: through this connection nothing can begin any more."""


class HostUnavailable(Unavailable):
    """A machine's BMC did not answer: nothing is known."""

    code = "HostUnavailable"


class PortClosed(Unavailable):
    """Nothing listens on that port of the job, or not yet."""

    code = "PortClosed"


class Unreachable(Unavailable):
    """The server could not be reached at all: nothing was sent."""

    code = "Unreachable"


class EngineRefused(IsthmusError):
    """The engine answered, and said no."""

    code = "EngineRefused"


class HostRefused(IsthmusError):
    """A machine's BMC answered, and its answer is no, or cannot be believed."""

    code = "HostRefused"


class JobFailed(IsthmusError):
    """A job that was waited for did not succeed."""

    code = "JobFailed"


class Misconfigured(IsthmusError):
    """A setting, or the machine, lacks something."""

    code = "Misconfigured"
