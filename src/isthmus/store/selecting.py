"""Queries as SQL: selectors become conditions on the JSON columns, for both dialects of SQL.

Values always travel as parameters. Where an object lives (`metadata.name`, `metadata.namespace`) is a column, so
that the index finds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from isthmus.resources.frame.selectors import Requirement

from .base import Query
from .paging import Position

_COLUMNS = {"metadata.name": "name", "metadata.namespace": "namespace"}


class Conditions(ABC):
    """The conditions of one query, with their parameters in order."""

    def __init__(self, query: Query, after: Position | None = None) -> None:
        self.parameters: list[Any] = []
        parts = [f"kind = {self.parameter(query.kind.name)}"]
        if query.namespace is not None:
            parts.append(f"namespace = {self.parameter(query.namespace)}")
        if after is not None and query.namespace is not None:
            parts.append(f"name > {self.parameter(after.name)}")
        elif after is not None:
            parts.append(f"(namespace, name) > ({self.parameter(after.namespace)}, {self.parameter(after.name)})")
        parts += [self._condition("labels", requirement) for requirement in query.labels.requirements]
        parts += [self._condition("fields", requirement) for requirement in query.fields.requirements]
        self.sql = " AND ".join(parts)

    @abstractmethod
    def parameter(self, value: str | int) -> str:
        """The placeholder for a value."""

    @abstractmethod
    def member(self, column: str, key: str) -> str:
        """The text at a key of a JSON column, or NULL."""

    def _condition(self, column: str, requirement: Requirement) -> str:
        def value() -> str:  # anew for each use: a placeholder stands for one use only
            if column == "fields" and requirement.key in _COLUMNS:
                return _COLUMNS[requirement.key]
            return self.member(column, requirement.key)

        if requirement.op == "exists":
            return f"{value()} IS NOT NULL"
        if requirement.op == "absent":
            return f"{value()} IS NULL"
        if requirement.op == "in":
            return f"{value()} IN ({self._values(requirement)})"
        return f"({value()} IS NULL OR {value()} NOT IN ({self._values(requirement)}))"

    def _values(self, requirement: Requirement) -> str:
        return ", ".join(self.parameter(value) for value in sorted(requirement.values))


def selects_by_content(query: Query) -> bool:
    """Whether the query must look into objects that it then leaves out."""
    return bool(query.labels) or any(part.key not in _COLUMNS for part in query.fields.requirements)
