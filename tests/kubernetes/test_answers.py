"""What the answers of an API server mean, to a store and to a site."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.errors import (
    AlreadyExists,
    Conflict,
    EngineRefused,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    SiteUnavailable,
    StoreUnavailable,
    TooLarge,
)
from isthmus.kubernetes.answers import SITE, STORE, error_of, is_denied


@pytest.mark.parametrize(
    ("code", "status", "store", "site"),
    [
        (404, {"details": {"name": "x"}}, NotFound, NotFound),
        (404, {}, StoreUnavailable, SiteUnavailable),
        (409, {"reason": "AlreadyExists"}, AlreadyExists, AlreadyExists),
        (409, {"reason": "Conflict"}, Conflict, Conflict),
        (410, {"reason": "Expired"}, Expired, Expired),
        (413, {}, TooLarge, EngineRefused),
        (422, {"details": {"causes": [{"field": "spec.x", "message": "bad"}]}}, Invalid, EngineRefused),
        (403, {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}, Forbidden, Forbidden),
        (403, {"message": "exceeded quota: q"}, StoreUnavailable, SiteUnavailable),
        (403, {}, StoreUnavailable, SiteUnavailable),
        (401, {}, StoreUnavailable, SiteUnavailable),
        (500, {}, StoreUnavailable, SiteUnavailable),
    ],
)
def test_answers(code: int, status: dict[str, Any], store: type[Exception], site: type[Exception]) -> None:
    body = json.dumps({"kind": "Status", "message": "no", **status}).encode()
    for meanings, error in ((STORE, store), (SITE, site)):
        assert type(error_of(code, body, "Job x", meanings)) is error
        assert type(error_of(code, b"not json", "Job x", meanings)).__name__ != "InternalError"


def test_who_may_not() -> None:
    assert is_denied(error_of(403, b"", "x", SITE))
    assert not is_denied(error_of(403, b'{"kind":"Status","message":"exceeded quota: q"}', "x", SITE))
    assert not is_denied(error_of(500, b"", "x", SITE))


def test_when_to_come_back() -> None:
    body = json.dumps({"kind": "Status", "details": {"retryAfterSeconds": 3}}).encode()
    assert error_of(429, body, "x", SITE).retry_after == 3
    assert error_of(429, body, "x", SITE, 7.0).retry_after == 7
