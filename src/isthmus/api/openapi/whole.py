"""The whole HTTP surface in one OpenAPI 3.1 document: the kinds in `resources`, the rest in `surface`.

Schemas are the models' own JSON Schema, so that what is documented is what is checked.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from isthmus import __version__
from isthmus.api.files import DigestsAsked
from isthmus.api.resources.targets import all_views
from isthmus.resources.schemas.documents import Schema, component_schemas
from isthmus.resources.work.trees import Tree

from . import resources, surface
from .answers import ERRORS, REFERENCE, error_responses

TITLE = "Isthmus"
DESCRIPTION = (
    "One control plane for every machine an institute owns. Resources follow the conventions of Kubernetes; beside "
    "them are live logs, files and outputs. Every error is a Kubernetes Status."
)


def document() -> dict[str, Any]:
    """The document."""
    paths: dict[str, Any] = {}
    for path, method, operation in (*resources.operations_of_kinds(), *surface.operations_of_rest()):
        paths.setdefault(path, {})[method] = operation
    ids = Counter(operation["operationId"] for item in paths.values() for operation in item.values())
    twice = [name for name, count in ids.items() if count > 1]
    if twice:
        raise AssertionError(f"operations have the same id: {twice}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": TITLE,
            "version": __version__,
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"BearerToken": []}],
        "tags": [{"name": name, "description": text} for name, text in surface.tags().items()],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "responses": error_responses(ERRORS),
            "securitySchemes": {
                "BearerToken": {"type": "http", "scheme": "bearer", "description": "ist_<name>_<secret>"}
            },
        },
    }


def schemas() -> dict[str, Schema]:
    """The models of all kinds, and what is said beside them."""
    models = [view.kind.model for views in all_views().values() for view in views.values() if not view.read_only]
    found = component_schemas([*models, Tree, DigestsAsked], REFERENCE + "{model}")
    return {**found, **resources.list_schemas(), **surface.SCHEMAS}
