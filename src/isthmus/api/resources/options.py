"""Options: what the query string (and the body of a deletion) asks for, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException

from isthmus.errors import Cause, Invalid
from isthmus.resources.frame.selectors import EVERYTHING, Selector, parse_fields, parse_labels
from isthmus.resources.kinds import KINDS
from isthmus.store.base import Propagation

from .namespaces import NAMESPACE

MAX_LIMIT = 1_000_000
_TRUE = frozenset({"1", "true", "True", "TRUE", "t", "T"})
_FALSE = frozenset({"0", "false", "False", "FALSE", "f", "F", ""})


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Of a list or a watch."""

    labels: Selector = EVERYTHING
    fields: Selector = EVERYTHING
    limit: int | None = None
    continue_: str | None = None
    version: int | None = None
    exact: bool = False
    watch: bool = False
    bookmarks: bool = False
    timeout: float | None = None
    include: str = "Metadata"
    """How much of each object goes into a row of a table."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Of a create, update or patch."""

    dry_run: bool = False
    manager: str = ""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Of a deletion."""

    dry_run: bool = False
    propagation: Propagation = Propagation.BACKGROUND
    uid: str | None = None
    version: int | None = None


def query_of(raw: bytes) -> dict[str, str]:
    """The query string; of a parameter that is there twice the last counts."""
    try:
        return dict(parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100))
    except ValueError:
        raise HTTPException(400, "the query string is not of the form name=value&name=value in UTF-8") from None


_PLAIN = ListOptions()
_REMEMBERED = 2048


@lru_cache(maxsize=2048)
def _list_options(kind_name: str, raw: bytes) -> ListOptions:
    kind = KINDS.get(kind_name, NAMESPACE)
    query = query_of(raw)
    if _truth(query, "sendInitialEvents"):
        # 422 is what makes client-go fall back to a list and then a watch.
        raise Invalid(
            "sendInitialEvents is not offered; list first, then watch from the version of the list",
            causes=(Cause("sendInitialEvents", "is forbidden for watch", "FieldValueForbidden"),),
        )
    limit = _whole(query, "limit", MAX_LIMIT)
    timeout = _whole(query, "timeoutSeconds", 7 * 86400)
    include = query.get("includeObject") or "Metadata"
    if include not in ("None", "Metadata", "Object"):
        raise HTTPException(400, f"includeObject is {include[:40]!r}; it can be None, Metadata or Object")
    return ListOptions(
        labels=parse_labels(query.get("labelSelector", "")),
        fields=parse_fields(query.get("fieldSelector", ""), kind.fields),
        limit=limit or None,
        continue_=query.get("continue") or None,
        version=version_in(query.get("resourceVersion") or None),
        exact=query.get("resourceVersionMatch") == "Exact",
        watch=_truth(query, "watch"),
        bookmarks=_truth(query, "allowWatchBookmarks"),
        timeout=float(timeout) if timeout else None,
        include=include,
    )


def list_options(kind_name: str, raw: bytes) -> ListOptions:
    """Options of a list or watch. The same query comes again and again, so it is read once (unless it is long: what is
    remembered is bounded)."""
    if not raw:
        return _PLAIN
    return _list_options(kind_name, raw) if len(raw) <= _REMEMBERED else _list_options.__wrapped__(kind_name, raw)


def write_options(raw: bytes) -> WriteOptions:
    """Options of a write."""
    query = query_of(raw) if raw else {}
    validation = query.get("fieldValidation", "")
    if validation not in ("", "Ignore", "Warn", "Strict"):
        raise HTTPException(400, f"fieldValidation is {validation[:40]!r}; it can be Ignore, Warn or Strict")
    return WriteOptions(_dry_run(query.get("dryRun")), query.get("fieldManager", "")[:128])


def delete_options(raw: bytes, body: Mapping[str, Any]) -> DeleteOptions:
    """Options of a deletion, from the body or, where that says nothing, the query."""
    query = query_of(raw) if raw else {}
    dry = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    if not isinstance(dry, list) or len(dry) > 1:
        raise Invalid("dryRun must be [All] or be left out", causes=(Cause("dryRun", "must be [All]"),))
    preconditions = body.get("preconditions")
    preconditions = {} if preconditions is None else preconditions
    if not isinstance(preconditions, dict):
        raise Invalid("preconditions must be an object", causes=(Cause("preconditions", "must be an object"),))
    uid = preconditions.get("uid")
    version = preconditions.get("resourceVersion")
    if not isinstance(uid, str | None) or not isinstance(version, str | None):
        raise Invalid("the preconditions uid and resourceVersion are texts", causes=(Cause("preconditions", "texts"),))
    return DeleteOptions(_dry_run(dry[0] if dry else None), _propagation(query, body), uid or None, version_in(version))


def version_in(text: str | None) -> int | None:
    """A resourceVersion as a number; raises a 400 if it is none of ours."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HTTPException(400, f"resourceVersion {text[:40]!r} is not a version; take it from a list or an object")
    return int(text)


def _propagation(query: Mapping[str, str], body: Mapping[str, Any]) -> Propagation:
    policy = body.get("propagationPolicy") or query.get("propagationPolicy")
    orphan = body.get("orphanDependents", _truth(query, "orphanDependents") or None)
    if policy is None:
        return Propagation.ORPHAN if orphan is True else Propagation.BACKGROUND
    try:
        return Propagation(policy)
    except ValueError:
        message = f"{str(policy)[:40]!r} is not one of Background, Foreground and Orphan"
        raise Invalid(
            f"propagationPolicy: {message}", causes=(Cause("propagationPolicy", message, "FieldValueNotSupported"),)
        ) from None


def _dry_run(value: Any) -> bool:
    if value in (None, ""):
        return False
    if value != "All":
        message = f"{str(value)[:40]!r} is not supported; the only dry run is All"
        raise Invalid(f"dryRun: {message}", causes=(Cause("dryRun", message, "FieldValueNotSupported"),))
    return True


def _truth(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name, "")
    if value not in _TRUE and value not in _FALSE:
        raise HTTPException(400, f"{name} is {value[:40]!r}; it can be true or false")
    return value in _TRUE


def _whole(query: Mapping[str, str], name: str, most: int) -> int:
    value = query.get(name) or "0"
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise HTTPException(400, f"{name} is {value[:40]!r}; it must be a whole number, 0 or more")
    return min(int(value), most)
