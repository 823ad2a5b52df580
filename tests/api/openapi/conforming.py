"""One operation of the document, asked of the server with a few requests made up from its schema."""

from __future__ import annotations

from typing import Any

import hypothesis
import schemathesis
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from isthmus.api.openapi import whole
from isthmus.testing.apis import RunningApi

EXAMPLES = 3
"""Per operation and mode: making up a body takes the most time, ten times as long as the request."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
SETTINGS = hypothesis.settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)


def operations(*methods: str) -> list[Any]:
    schema = schemathesis.openapi.from_dict(whole.document())
    found = [result.ok() for result in schema.get_all_operations()]
    return [operation for operation in found if operation.method in methods]


def conforms(api: RunningApi, operation: Any, mode: GenerationMode, fixed: dict[str, str]) -> int:
    count = 0

    @SETTINGS
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case) -> None:
        nonlocal count
        count += 1
        for name in fixed:
            if case.path_parameters and name in case.path_parameters:
                case.path_parameters[name] = fixed[name]
        response = case.call(base_url=api.url, headers={"Authorization": f"Bearer {api.tokens['admin']}"}, timeout=60)
        case.validate_response(response, checks=CHECKS)

    try:
        check()
    except hypothesis.errors.Unsatisfiable:
        return 0  # there is no wrong request where there is nothing to get wrong
    return count
