"""Bodies: bytes to plain JSON values, safe against documents made to hurt.

JSON is read by orjson, which refuses NaN, lone surrogates and broken UTF-8. YAML is read by a loader that makes
only JSON values: times stay text, `01:30:00` is not a number in base 60, tags and merge tricks are refused, and
the events are counted before anything is built, so that neither depth nor aliases can blow up. Both end in
`check_plain`: bounded depth, finite numbers, integers of 64 bits.
"""

from __future__ import annotations

import asyncio
import math
import re
from typing import Any

import orjson
import yaml
from starlette.exceptions import HTTPException

from isthmus.errors import Invalid

MAX_YAML_NODES = 200_000
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
        _check_events(text, nesting)
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader with fewer types
    except yaml.YAMLError as error:
        raise HTTPException(400, f"the body is not YAML: {' '.join(str(error).split())[:500]}") from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not YAML that can be read: {str(error)[:200]}") from None
    check_plain(value, nesting)
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise HTTPException(400, f"the body holds what JSON cannot: {error}") from None
    return value


def check_plain(value: Any, nesting: int) -> None:
    """Raise Invalid if the value is nested too deep or holds a number that JSON readers do not agree on."""
    level: list[Any] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > nesting + 1:
            raise Invalid(f"the document is nested more than {nesting} deep; no kind needs that")
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


def _check_events(text: str, nesting: int) -> None:
    """Bound the depth and the number of nodes after aliases are expanded, before anything is built."""
    depth = total = 0
    sizes: dict[str, int] = {}
    open_anchors: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in {name for name, _ in open_anchors}:
                raise Invalid(f"the alias *{event.anchor} lies inside what it names")
            total += sizes.get(event.anchor or "", 1)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            open_anchors.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            anchor, before = open_anchors.pop()
            if anchor:
                sizes[anchor] = total - before
        if depth > nesting:
            raise Invalid(f"the document is nested more than {nesting} deep; no kind needs that")
        if total > MAX_YAML_NODES:
            raise Invalid(f"the document has more than {MAX_YAML_NODES} parts once its aliases are expanded")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A SafeLoader that makes only what JSON has."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", r"^[-+]?(?:0|[1-9][0-9]{0,30}|0x[0-9a-fA-F]{1,16})$", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$", "-+0123456789."),
    ("tag:yaml.org,2002:float", r"^[-+]?[0-9]+[eE][-+]?[0-9]+$", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+."),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a text", key_node.start_mark)
        if key_node.value in found:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key_node.value!r} is there twice", key_node.start_mark
            )
        found[key_node.value] = loader.construct_object(value_node, deep=True)
    return found


_Loader.yaml_constructors = {
    tag: maker
    for tag, maker in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "seq", "str")
}
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
