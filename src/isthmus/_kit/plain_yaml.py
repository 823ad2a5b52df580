"""YAML that makes only what JSON has: for manifests, whoever reads them.

Times stay text, `01:30:00` is not a number in base 60, tags and merge tricks are refused, a key may not stand twice.
`check_events` counts before anything is built, so that neither depth nor aliases can blow up.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

MAX_NODES = 200_000


class TooComplex(ValueError):
    """Too deep, too many parts, or an alias that never ends."""


def check_events(text: str | bytes, nesting: int) -> None:
    """Bound the depth and the number of nodes after aliases are expanded, before anything is built."""
    depth = total = 0
    sizes: dict[str, int] = {}
    open_anchors: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, Loader=PlainLoader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in {name for name, _ in open_anchors}:
                raise TooComplex(f"the alias *{event.anchor} lies inside what it names")
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
            raise TooComplex(f"the document is nested more than {nesting} deep; no kind needs that")
        if total > MAX_NODES:
            raise TooComplex(f"the document has more than {MAX_NODES} parts once its aliases are expanded")


class PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A SafeLoader that makes only what JSON has."""


PlainLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", r"^[-+]?(?:0|[1-9][0-9]{0,30}|0x[0-9a-fA-F]{1,16})$", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$", "-+0123456789."),
    ("tag:yaml.org,2002:float", r"^[-+]?[0-9]+[eE][-+]?[0-9]+$", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+."),
):
    PlainLoader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


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


PlainLoader.yaml_constructors = {
    tag: maker
    for tag, maker in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "seq", "str")
}
PlainLoader.add_constructor("tag:yaml.org,2002:map", _mapping)
