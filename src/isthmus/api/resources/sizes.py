"""How large an object may be. Pure; looked at on every write of a client.

The store keeps whatever it was given, and lists put objects together, so the limits are here. An object that was
accepted under older limits stays: it may be changed as long as it hardly grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from isthmus.api.context import RequestLimits
from isthmus.errors import Cause, Invalid, TooLarge
from isthmus.resources.work.arrays import expand_indices

SLACK = 4096
"""Bytes by which an object beyond the limit may still grow in one change: it must be possible to cancel it."""
MAX_FINALIZERS = 32
MAX_FINALIZER = 317
MAX_OWNERS = 32
MAX_LABELS = 1000
MAX_ANNOTATIONS = 1000
MAX_ANNOTATION_KEY = 317
MAX_COPIES_BYTES = 2 * 2**30
"""Of all elements of an array together: each is an object of its own, with the whole spec."""

Object = Mapping[str, Any]


def check_sizes(old: Object | None, new: Object, limits: RequestLimits) -> None:
    """Raise TooLarge or Invalid for an object that is larger than allowed, and than it was."""
    size = _size(new)
    if size > limits.object_bytes and (old is None or size > _size({**old, "status": new.get("status")}) + SLACK):
        raise TooLarge(
            f"the object has {size} bytes, more than the {limits.object_bytes} allowed; "
            "send large data as files and name them in the object"
        )
    _check_metadata(old["metadata"] if old else {}, new["metadata"], limits)
    _check_copies(new, size)


def _size(obj: Object) -> int:
    try:
        return len(orjson.dumps(obj))
    except TypeError as error:
        raise Invalid(f"the object cannot be written as JSON: {error}") from None


def _check_metadata(old: Object, new: Object, limits: RequestLimits) -> None:
    annotations = new.get("annotations") or {}
    if annotations:
        size, before = _annotation_bytes(annotations), _annotation_bytes(old.get("annotations") or {})
        if size > limits.annotation_bytes and size > before:
            message = f"have {size} bytes, more than the {limits.annotation_bytes} allowed for all of them together"
            raise TooLarge(f"metadata.annotations {message}", causes=(Cause("metadata.annotations", message),))
        long = next((key for key in annotations if len(key) > MAX_ANNOTATION_KEY), None)
        if long is not None and long not in (old.get("annotations") or {}):
            raise _wrong("metadata.annotations", f"{long[:40]!r}… is longer than {MAX_ANNOTATION_KEY} characters")
    for field, most in (
        ("labels", MAX_LABELS),
        ("annotations", MAX_ANNOTATIONS),
        ("finalizers", MAX_FINALIZERS),
        ("ownerReferences", MAX_OWNERS),
    ):
        count = len(new.get(field) or ())
        if count > most and count > len(old.get(field) or ()):
            raise _wrong(f"metadata.{field}", f"has {count} entries, more than the {most} allowed")
    for finalizer in new.get("finalizers") or ():
        if len(finalizer) > MAX_FINALIZER:
            raise _wrong("metadata.finalizers", f"{finalizer[:40]!r}… is longer than {MAX_FINALIZER} characters")


def _annotation_bytes(annotations: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def _check_copies(obj: Object, size: int) -> None:
    array = (obj.get("spec") or {}).get("array") if obj.get("kind") == "Job" else None
    if array and size > 16_384 and size * len(expand_indices(array["indices"])) > MAX_COPIES_BYTES:
        raise TooLarge(
            f"the elements of the array would have more than {MAX_COPIES_BYTES} bytes together; "
            "send what is large as files, which all elements share"
        )


def _wrong(field: str, message: str) -> Invalid:
    return Invalid(f"{field} {message}", causes=(Cause(field, message),))
