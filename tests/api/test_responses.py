from __future__ import annotations

import pytest
from starlette.exceptions import HTTPException

from isthmus import errors
from isthmus.api.responses import error_response, status_of
from isthmus.client.answers import error_of_status
from isthmus.errors import Cause, IsthmusError, NotFound
from isthmus.store.base import Key, missing


def _tree(cls: type[IsthmusError]) -> list[type[IsthmusError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _tree(child))]


CODES = {
    "InternalError": 500, "Invalid": 422, "RequestEntityTooLarge": 413, "Unauthorized": 401, "Forbidden": 403,
    "NotFound": 404, "Conflict": 409, "AlreadyExists": 409, "Expired": 410, "ServiceUnavailable": 503,
    "StoreUnavailable": 503, "SiteUnavailable": 503, "Unreachable": 503, "EngineRefused": 422, "JobFailed": 422,
    "HostUnavailable": 503, "PortClosed": 503, "HostRefused": 422,
    "Misconfigured": 500,
}  # fmt: skip


@pytest.mark.parametrize("error", _tree(IsthmusError))
def test_every_error_has_a_status(error: type[IsthmusError]) -> None:
    status = status_of(error("what; remedy"))
    assert status["code"] == CODES[error.code]
    assert status["status"] == "Failure"
    assert status["message"] == "what; remedy"
    assert error.code in (status["reason"], status.get("details", {}).get("code"))


def test_causes_and_headers() -> None:
    status = status_of(errors.Invalid("x", causes=(Cause("spec.a", "bad"),)), {"name": "n"})
    assert status["details"]["name"] == "n"
    assert status["details"]["causes"] == [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec.a"}]
    assert "Bearer" in error_response(errors.Unauthenticated("x")).headers["WWW-Authenticate"]
    assert error_response(errors.Unavailable("x", retry_after=1.2)).headers["Retry-After"] == "2"
    limited = error_response(HTTPException(429, "slow down", {"Retry-After": "7"}))
    assert (limited.status_code, limited.headers["Retry-After"]) == (429, "7")
    assert status_of(HTTPException(415, "x"))["reason"] == "UnsupportedMediaType"


def test_a_missing_object_is_named_in_the_details_and_nothing_else_is() -> None:
    """Clients tell a name that was mistyped from everything else that answers 404, and need no sentence for it."""
    asked = {"name": "train", "group": "isthmus.dev", "kind": "jobs"}
    there_is_none = status_of(missing(Key("Job", "physics", "train")), asked)
    assert there_is_none["details"] == {**asked, "namespace": "physics"}
    error = error_of_status(there_is_none)
    assert isinstance(error, NotFound)
    assert (error.kind, error.namespace, error.name) == ("jobs", "physics", "train")
    another = status_of(missing(Key("Site", "", "here")), asked)
    assert another["details"] == {"name": "here", "group": "isthmus.dev", "kind": "sites"}
    no_scale = error_of_status(status_of(NotFound("jobs.isthmus.dev cannot be scaled"), asked))
    assert isinstance(no_scale, NotFound)
    assert no_scale.name == ""
