"""How objects look in a cluster, and how they look to us. Pure.

- What only Kubernetes keeps (`managedFields`, …) is dropped from what comes in; what the server owns is not sent.
- An empty text stands for "not set" in every field of ours, and is left out: some servers take it for null.
- Leases want times with six digits, and no holder rather than an empty one.
- Events are shared with everybody in the cluster. Ours carry a label, and only those are ever listed or touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import orjson

from isthmus._kit.clock import parse_timestamp
from isthmus.resources.frame.meta import GROUP
from isthmus.resources.frame.selectors import Requirement, Selector
from isthmus.resources.kinds import EVENT, LEASE, Kind
from isthmus.resources.schemas.crds import MANAGED_BY
from isthmus.resources.schemas.documents import Schema, structural_schema
from isthmus.store.base import Key, Object, Query, Record

_DROPPED = ("managedFields", "selfLink", "deletionGracePeriodSeconds")
_SERVERS = frozenset({*_DROPPED, "creationTimestamp", "deletionTimestamp", "generation"})
_OURS = ("app.kubernetes.io/managed-by", MANAGED_BY["app.kubernetes.io/managed-by"])
_KEY_FIELDS = ("metadata.name", "metadata.namespace")


def path_of(kind: Kind, namespace: str | None, name: str = "", sub: str = "") -> str:
    """Where objects of a kind are found; one of them with its name, a part of it with `sub`."""
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"/namespaces/{namespace}" if kind.namespaced and namespace else ""
    return "/".join(part for part in (f"{base}{place}/{kind.plural}", name, sub) if part)


def incoming(kind: Kind, obj: Object) -> Record:
    """An object of the server's as a record. The object is ours to change."""
    meta = obj["metadata"]
    for field in _DROPPED:
        meta.pop(field, None)
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.name
    key = Key(kind.name, meta.get("namespace", "") if kind.namespaced else "", meta["name"])
    return Record(key, meta["uid"], int(meta["resourceVersion"]), orjson.dumps(obj))


def outgoing(kind: Kind, obj: Mapping[str, Any]) -> Object:
    """An object as it is sent: without what the server owns, in the server's own words."""
    meta = {name: value for name, value in obj["metadata"].items() if value and name not in _SERVERS}
    sent: Object = {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
    if kind.group == GROUP:
        sent = {**sent, **{part: _slim(obj[part], _schema(kind)[part]) for part in ("spec", "status") if obj.get(part)}}
    if not kind.namespaced:
        meta.pop("namespace", None)
    if kind is LEASE:
        sent["spec"] = _lease(obj.get("spec") or {})
    if kind is EVENT:
        meta["labels"] = {**(meta.get("labels") or {}), _OURS[0]: _OURS[1]}
    return sent


@cache
def _schema(kind: Kind) -> Schema:
    found: Schema = structural_schema(kind)["properties"]
    return found


_DEEPEST = 100
"""No kind nests deeper; what does is left as it is, and refused when it is written as JSON."""


def _slim(value: Any, schema: Schema, depth: int = 0) -> Any:
    """Without empty texts in fields. Items of lists and values of maps are kept: there, empty is a value too."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [_slim(item, schema.get("items") or {}, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        return value
    fields = schema.get("properties")
    if fields is None:
        rest = schema.get("additionalProperties") or {}
        return {name: _slim(item, rest, depth + 1) for name, item in value.items()}
    found = {name: item for name, item in value.items() if item not in ("", None)}
    return {name: _slim(item, fields.get(name) or {}, depth + 1) for name, item in found.items()}


def new_object(kind: Kind, obj: Mapping[str, Any]) -> Object:
    """The same, of an object that does not exist yet."""
    sent = outgoing(kind, obj)
    for field in ("uid", "resourceVersion"):
        sent["metadata"].pop(field, None)
    return sent


def is_ours(record: Record) -> bool:
    """Whether we may see and touch it. Everything of our own kinds; of the events, those that we made."""
    if record.key.kind != EVENT.name:
        return True
    labels = record.obj["metadata"].get("labels") or {}
    return bool(labels.get(_OURS[0]) == _OURS[1])


def selection(query: Query) -> dict[str, str]:
    """What of a query the server itself selects. The rest is `left_out`'s."""
    labels = [_text(part) for part in query.labels.requirements]
    if query.kind is EVENT:
        labels.append(f"{_OURS[0]}={_OURS[1]}")
    fields = [_text(part) for part in query.fields.requirements if query.kind is EVENT or part.key in _KEY_FIELDS]
    named = {"labelSelector": ",".join(labels), "fieldSelector": ",".join(fields)}
    return {name: text for name, text in named.items() if text}


def remaining_fields(query: Query) -> Selector:
    """The fields that the server cannot select (before 1.31, any of a custom resource), to be looked at here."""
    if query.kind is EVENT:
        return Selector()
    return Selector(tuple(part for part in query.fields.requirements if part.key not in _KEY_FIELDS))


def _text(part: Requirement) -> str:
    values = sorted(part.values)
    match part.op:
        case "exists":
            return part.key
        case "absent":
            return f"!{part.key}"
        case "in" if len(values) == 1:
            return f"{part.key}={values[0]}"
        case "notin" if len(values) == 1:
            return f"{part.key}!={values[0]}"
    return f"{part.key} {part.op} ({','.join(values)})"


def _lease(spec: Mapping[str, Any]) -> Object:
    found = {name: value for name, value in spec.items() if value is not None and value != ""}
    for name in ("acquireTime", "renewTime"):
        if name in found:
            moment = parse_timestamp(found[name])
            found[name] = moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return found
