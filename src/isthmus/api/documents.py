"""Bodies: bytes to plain JSON values, safe against documents made to hurt.

JSON is read by orjson, which refuses NaN, lone surrogates and broken UTF-8. YAML is read by a loader that makes
only JSON values: times stay text, `01:30:00` is not a number in base 60, tags and merge tricks are refused, and
the events are counted before anything is built, so that neither depth nor aliases can blow up. Both end in
`check_plain`: bounded depth and number of parts, finite numbers, integers of 64 bits.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import orjson
import yaml
from starlette.exceptions import HTTPException

from isthmus._kit.plain_yaml import MAX_NODES, PlainLoader, TooComplex, check_events
from isthmus.errors import Invalid

_IN_THREAD = 64 * 1024
_JSON_TYPES = frozenset({"application/json", "text/json", "*/*", ""})
_YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


async def read_document(body: bytes, content_type: str, nesting: int) -> dict[str, Any]:
    """The object in a body."""
    value = await read_value(body, content_type, nesting)
    if not isinstance(value, dict):
        raise HTTPException(400, f"the body must be an object, not {_named(value)}")
    return value


async def read_value(body: bytes, content_type: str, nesting: int) -> Any:
    """Whatever is in a body. Large ones are read in a thread, so that they do not hold up the others."""
    media = media_type(content_type)
    if media in _YAML_TYPES or media == "application/apply-patch+yaml":
        parse = parse_yaml
    elif media in _JSON_TYPES or media.endswith("+json"):
        parse = parse_json
    else:
        raise HTTPException(415, f"the content type {media!r} is not understood; send application/json or yaml")
    if len(body) > _IN_THREAD:
        return await asyncio.to_thread(parse, body, nesting)
    return parse(body, nesting)


def media_type(content_type: str) -> str:
    """`application/json` of `application/json; charset=utf-8`."""
    return content_type.partition(";")[0].strip().lower()


def parse_json(body: bytes, nesting: int) -> Any:
    """A JSON value; raises a 400 that says where it goes wrong."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None
    check_plain(value, nesting)
    return value


def parse_yaml(body: bytes, nesting: int) -> Any:
    """A YAML value of JSON types; raises a 400 that says where it goes wrong."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        check_events(text, nesting)
        value = yaml.load(text, Loader=PlainLoader)  # noqa: S506 - a SafeLoader with fewer types
    except yaml.YAMLError as error:
        raise HTTPException(400, f"the body is not YAML: {' '.join(str(error).split())[:500]}") from None
    except TooComplex as error:
        raise Invalid(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not YAML that can be read: {str(error)[:200]}") from None
    check_plain(value, nesting)
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise HTTPException(400, f"the body holds what JSON cannot: {error}") from None
    return value


def check_plain(value: Any, nesting: int, most: int = MAX_NODES) -> None:
    """Raise Invalid if the value is nested too deep, has more than `most` parts, or holds a number that JSON readers do
    not agree on."""
    level: list[Any] = [value]
    depth = parts = 0
    while level:
        depth += 1
        parts += len(level)
        if depth > nesting + 1:
            raise Invalid(f"the document is nested more than {nesting} deep; no kind needs that")
        if parts > most:
            raise Invalid(f"the document has more than {most} parts; no kind needs that")
        deeper: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                deeper.extend(item.values())
            elif kind is list:
                deeper.extend(item)
            elif kind is float:
                if not math.isfinite(item):
                    raise Invalid("the document holds a number that is infinite or not a number")
            elif kind is int and not -(2**63) <= item < 2**63:
                raise Invalid("the document holds a whole number that needs more than 64 bits; write it as text")
        level = deeper


def _named(value: Any) -> str:
    names = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "a truth value"}
    return names.get(type(value), "nothing")
