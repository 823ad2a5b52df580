"""Patches: RFC 7386 merge patches, RFC 6902 JSON patches, and server-side apply in a simple form. Pure.

**Apply** merges what a manager sends into the object and takes away what the same manager sent before and no
longer sends. What it sent is kept in an annotation as a skeleton: the same object with every leaf `null`. Lists are
leaves. There are no conflicts: the last manager wins.

**The work is bounded**, not only the number of operations: what is copied counts by its bytes, an entry put into or
taken out of a long list by the length of the list, and a pointer may be only as long as objects are deep.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from isthmus.errors import Invalid, TooLarge

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 4 * 2**20
MAX_SHIFTED = 50_000_000
"""Entries of lists that move up or down to make or close a gap, over all operations."""
MAX_POINTER = 64
"""Names in a pointer: documents are not nested deeper."""
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
    result, _ = _copied(target, 0)
    work = _Work()
    for at, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise Invalid(f"operation {at} of the patch is not an object")
        result = _operate(result, operation, at, work)
    return result


class _Work:
    """What a patch has cost so far."""

    def __init__(self) -> None:
        self._bytes = self._shifted = 0

    def copied(self, value: Any, at: int) -> Any:
        """A copy of a part of the object."""
        made, size = _copied(value, at)
        self._bytes += size
        if self._bytes > MAX_COPIED_BYTES:
            raise TooLarge(f"the patch copies more than {MAX_COPIED_BYTES} bytes")
        return made

    def shift(self, count: int) -> None:
        """So many entries of a list move."""
        self._shifted += count
        if self._shifted > MAX_SHIFTED:
            raise TooLarge("the patch changes long lists in too many places; send the whole list instead")


def _copied(value: Any, at: int) -> tuple[Any, int]:
    try:
        data = orjson.dumps(value)
    except TypeError:
        raise Invalid(f"operation {at} of the patch copies what is nested too deeply") from None
    return orjson.loads(data), len(data)


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


def _operate(target: Any, operation: Mapping[str, Any], at: int, work: _Work) -> Any:
    op = operation.get("op")
    path = _pointer(operation, "path", at)
    if op in ("add", "replace", "test") and "value" not in operation:
        raise Invalid(f"operation {at} of the patch ({op}) has no value")
    if op == "test":
        if _find(target, path, at) != operation["value"]:
            raise Invalid(f"operation {at} of the patch: the test of {operation['path'][:200]} failed")
        return target
    if op == "remove":
        return _remove(target, path, at, work)
    if op == "replace":
        left = _remove(target, path, at, work) if path else target
        return _add(left, path, _own(operation["value"], at), at, work, must_be_new=True)
    if op == "add":
        return _add(target, path, _own(operation["value"], at), at, work)
    if op == "copy":
        return _add(target, path, work.copied(_find(target, _pointer(operation, "from", at), at), at), at, work)
    if op == "move":
        source = _pointer(operation, "from", at)
        value = _find(target, source, at)
        if path[: len(source)] == source and path != source:
            raise Invalid(f"operation {at} of the patch moves {operation['from'][:200]} into itself")
        return _add(_remove(target, source, at, work), path, value, at, work)
    raise Invalid(f"operation {at} of the patch: {str(op)[:40]!r} is not one of add, remove, replace, move, copy, test")


def _own(value: Any, at: int) -> Any:
    """A value of the patch as a part of the object: later operations change it there, and not in the patch."""
    return _copied(value, at)[0] if isinstance(value, dict | list) else value


def _pointer(operation: Mapping[str, Any], field: str, at: int) -> list[str]:
    text = operation.get(field)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise Invalid(f"operation {at} of the patch: {field} must be a pointer such as /spec/priority")
    parts = text.split("/")[1:]
    if len(parts) > MAX_POINTER:
        raise Invalid(f"operation {at} of the patch: {field} has more than {MAX_POINTER} names")
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _find(target: Any, path: list[str], at: int) -> Any:
    for part in path:
        if isinstance(target, dict) and part in target:
            target = target[part]
        elif isinstance(target, list):
            target = target[_index(target, part, at, len(target) - 1)]
        else:
            raise _nothing(path, at)
    return target


def _add(target: Any, path: list[str], value: Any, at: int, work: _Work, *, must_be_new: bool = False) -> Any:
    if not path:
        return value
    parent = _find(target, path[:-1], at)
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        last = len(parent)
        place = last if path[-1] == "-" and not must_be_new else _index(parent, path[-1], at, last)
        work.shift(last - place)
        parent.insert(place, value)
    else:
        raise _nothing(path, at)
    return target


def _remove(target: Any, path: list[str], at: int, work: _Work) -> Any:
    if not path:
        raise Invalid(f"operation {at} of the patch removes the whole object")
    parent = _find(target, path[:-1], at)
    if isinstance(parent, dict) and path[-1] in parent:
        del parent[path[-1]]
    elif isinstance(parent, list):
        place = _index(parent, path[-1], at, len(parent) - 1)
        work.shift(len(parent) - place)
        del parent[place]
    else:
        raise _nothing(path, at)
    return target


def _index(items: list[Any], part: str, at: int, last: int) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", part) or int(part) > last:
        raise Invalid(f"operation {at} of the patch: {part[:80]!r} is no place in a list of {len(items)}")
    return int(part)


def _nothing(path: list[str], at: int) -> Invalid:
    return Invalid(f"operation {at} of the patch: there is nothing at /{'/'.join(path)[:200]}")
