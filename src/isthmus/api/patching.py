"""Patches: RFC 7386 merge patches, RFC 6902 JSON patches, and server-side apply in a simple form. Pure.

**Apply** merges what a manager sends into the object and takes away what the same manager sent before and no
longer sends. What it sent is kept in an annotation as a skeleton: the same object with every leaf `null`. Lists are
leaves. There are no conflicts: the last manager wins.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import orjson

from isthmus.errors import Invalid, TooLarge

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 4 * 2**20
APPLIED_ANNOTATION = "apply.isthmus.dev/"


def merge(target: Any, patch: Any) -> Any:
    """The target with an RFC 7386 patch; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """The target with RFC 6902 operations; raises Invalid that names the operation. The target is not changed."""
    if not isinstance(operations, list):
        raise Invalid("a JSON patch is a list of operations such as [{op: replace, path: /spec/priority, value: 1}]")
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(f"the patch has more than {MAX_OPERATIONS} operations; split it")
    result = copy.deepcopy(target)
    copied = 0
    for at, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise Invalid(f"operation {at} of the patch is not an object")
        if operation.get("op") == "copy":
            copied += len(orjson.dumps(_find(result, _pointer(operation, "from", at), at)))
            if copied > MAX_COPIED_BYTES:
                raise TooLarge(f"the patch copies more than {MAX_COPIED_BYTES} bytes")
        result = _operate(result, operation, at)
    return result


def apply(current: Mapping[str, Any], wanted: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """The object after a manager applied what it wants; see the module."""
    annotation = APPLIED_ANNOTATION + _annotation_name(manager)
    clean = {key: value for key, value in wanted.items() if key != "status"}
    clean["metadata"] = {k: v for k, v in (clean.get("metadata") or {}).items() if k != "managedFields"}
    known = ((current.get("metadata") or {}).get("annotations") or {}).get(annotation)
    result: dict[str, Any] = merge(_without(dict(current), _skeleton_of(known), clean), clean)
    tracked = {key: value for key, value in clean.items() if key not in ("metadata", "apiVersion", "kind")}
    tracked["metadata"] = {key: clean["metadata"].get(key) for key in ("labels", "annotations")}
    annotations = result["metadata"].get("annotations") or {}
    skeleton = orjson.dumps(_skeleton(tracked)).decode()
    result["metadata"]["annotations"] = annotations | {annotation: skeleton}
    return result


def _skeleton(value: dict[str, Any]) -> dict[str, Any]:
    """The same with every leaf null; what is empty is nobody's."""
    return {
        key: _skeleton(item) if isinstance(item, dict) else None
        for key, item in value.items()
        if item is not None and item != {}
    }


def _skeleton_of(text: Any) -> dict[str, Any]:
    try:
        found = orjson.loads(text) if isinstance(text, str) else {}
    except orjson.JSONDecodeError:
        return {}  # somebody wrote into the annotation: then nothing is known to be taken away
    return found if isinstance(found, dict) else {}


def _without(current: dict[str, Any], before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """`current` without the leaves of a skeleton that are not wanted any more, and without what they leave empty."""
    result = dict(current)
    for key, inner in before.items():
        here, now = result.get(key), wanted.get(key)
        if isinstance(inner, dict) and isinstance(here, dict):
            left = _without(here, inner, now if isinstance(now, dict) else {})
            if left or now is not None:
                result[key] = left
            else:
                del result[key]
        elif now is None:
            result.pop(key, None)
    return result


def _annotation_name(manager: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", manager)[:63].strip("-_.") or "unknown"


def _operate(target: Any, operation: Mapping[str, Any], at: int) -> Any:
    op = operation.get("op")
    path = _pointer(operation, "path", at)
    if op in ("add", "replace", "test") and "value" not in operation:
        raise Invalid(f"operation {at} of the patch ({op}) has no value")
    if op == "test":
        if _find(target, path, at) != operation["value"]:
            raise Invalid(f"operation {at} of the patch: the test of {operation['path']} failed")
        return target
    if op == "remove":
        return _remove(target, path, at)
    if op == "replace":
        return _add(_remove(target, path, at) if path else target, path, operation["value"], at, must_be_new=True)
    if op == "add":
        return _add(target, path, operation["value"], at)
    if op in ("move", "copy"):
        source = _pointer(operation, "from", at)
        value = copy.deepcopy(_find(target, source, at))
        if op == "move":
            if path[: len(source)] == source and path != source:
                raise Invalid(f"operation {at} of the patch moves {operation['from']} into itself")
            target = _remove(target, source, at)
        return _add(target, path, value, at)
    raise Invalid(f"operation {at} of the patch: {op!r} is not one of add, remove, replace, move, copy, test")


def _pointer(operation: Mapping[str, Any], field: str, at: int) -> list[str]:
    text = operation.get(field)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise Invalid(f"operation {at} of the patch: {field} must be a pointer such as /spec/priority")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _find(target: Any, path: list[str], at: int) -> Any:
    for part in path:
        if isinstance(target, dict) and part in target:
            target = target[part]
        elif isinstance(target, list):
            target = target[_index(target, part, at, len(target) - 1)]
        else:
            raise _nothing(path, at)
    return target


def _add(target: Any, path: list[str], value: Any, at: int, *, must_be_new: bool = False) -> Any:
    if not path:
        return value
    parent = _find(target, path[:-1], at)
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        last = len(parent)
        place = last if path[-1] == "-" and not must_be_new else _index(parent, path[-1], at, last)
        parent.insert(place, value)
    else:
        raise _nothing(path, at)
    return target


def _remove(target: Any, path: list[str], at: int) -> Any:
    if not path:
        raise Invalid(f"operation {at} of the patch removes the whole object")
    parent = _find(target, path[:-1], at)
    if isinstance(parent, dict) and path[-1] in parent:
        del parent[path[-1]]
    elif isinstance(parent, list):
        del parent[_index(parent, path[-1], at, len(parent) - 1)]
    else:
        raise _nothing(path, at)
    return target


def _index(items: list[Any], part: str, at: int, last: int) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", part) or int(part) > last:
        raise Invalid(f"operation {at} of the patch: {part!r} is no place in a list of {len(items)}")
    return int(part)


def _nothing(path: list[str], at: int) -> Invalid:
    return Invalid(f"operation {at} of the patch: there is nothing at /{'/'.join(path)}")
