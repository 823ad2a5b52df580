"""Label and field selectors, as Kubernetes writes them.

Labels: `app=web,tier!=cache,env in (a, b),gone notin (x),has,!hasnot`. Fields: `status.phase=Running,spec.x!=y`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from isthmus.errors import Cause, Invalid

_SET = re.compile(r"^([^\s=!,()]+)\s+(in|notin)\s*\(([^()]*)\)$")
_EQUAL = re.compile(r"^([^\s=!,()]+)\s*(==|=|!=)\s*([^\s=!,()]*)$")
_EXISTS = re.compile(r"^(!?)\s*([^\s=!,()]+)$")
MAX_LENGTH = 16 * 1024
"""Characters of a selector."""
MAX_PARTS = 64
"""Requirements in a selector: databases bound how deep a condition may be."""
MAX_VALUES = 1000
"""Values in all requirements together."""
_KEY = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One part of a selector: `in` with values, `notin` with values, `exists` or `absent`."""

    key: str
    op: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy this part."""
        if self.op == "in":
            return labels.get(self.key) in self.values if self.key in labels else False
        if self.op == "notin":
            return labels.get(self.key) not in self.values
        return (self.key in labels) == (self.op == "exists")


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements must hold; no requirement matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy every part."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


EVERYTHING = Selector()


def _split(text: str, field: str) -> list[str]:
    if len(text) > MAX_LENGTH or "\0" in text:
        raise _bad(text[:40], text[:40], field, f"a selector has at most {MAX_LENGTH} characters, and no NUL")
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    if len(parts) > MAX_PARTS or text.count(",") > MAX_VALUES:
        limits = f"it may have {MAX_PARTS} requirements with {MAX_VALUES} values"
        raise _bad(text[:40], text[:40], field, limits)
    return [part.strip() for part in parts]


def parse_labels(text: str) -> Selector:
    """Read a label selector; raises Invalid with what is wrong."""
    if not text.strip():
        return EVERYTHING
    return Selector(tuple(_requirement(part, text, "labelSelector") for part in _split(text, "labelSelector")))


def parse_fields(text: str, known: tuple[str, ...]) -> Selector:
    """Read a field selector over the known paths."""
    if not text.strip():
        return EVERYTHING
    requirements = []
    for part in _split(text, "fieldSelector"):
        match = _EQUAL.match(part)
        if not match:
            raise _bad(part, text, "fieldSelector", "write it like status.phase=Running or status.phase!=Failed")
        key, op, value = match.groups()
        if key not in ("metadata.name", "metadata.namespace", *known):
            offered = ", ".join(("metadata.name", "metadata.namespace", *known))
            raise _bad(part, text, "fieldSelector", f"fields that can be selected here: {offered}")
        requirements.append(Requirement(key, "notin" if op == "!=" else "in", frozenset({value})))
    return Selector(tuple(requirements))


def _requirement(part: str, whole: str, field: str) -> Requirement:
    if match := _SET.match(part):
        key, op, inner = match.groups()
        found = Requirement(key, op, frozenset(value.strip() for value in inner.split(",")))
    elif match := _EQUAL.match(part):
        key, op, value = match.groups()
        found = Requirement(key, "notin" if op == "!=" else "in", frozenset({value}))
    elif match := _EXISTS.match(part):
        found = Requirement(match[2], "absent" if match[1] else "exists")
    else:
        raise _bad(part, whole, field, "write it like app=web, tier!=cache, env in (a,b), has or !hasnot")
    if not _KEY.match(found.key):
        raise _bad(part, whole, field, f"{found.key[:80]!r} is not a label key")
    return found


def _bad(part: str, whole: str, field: str, remedy: str) -> Invalid:
    message = f"cannot read {part[:80]!r} in the selector {whole[:200]!r}; {remedy}"
    return Invalid(message, causes=(Cause(field, message),))
