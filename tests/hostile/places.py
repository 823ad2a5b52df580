"""Places in documents, found by their schemas, and what an attacker would write there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.routing import Route, Router

from isthmus.resources.frame.roles import Role
from isthmus.resources.kinds import KINDS, Kind
from isthmus.testing.apis import TENANT_NAME

WRITES = frozenset({"create", "update", "patch"})


def of_members() -> list[Kind]:
    """The kinds that members and admins of a tenant write."""
    return [kind for kind in KINDS.values() if any(kind.rights.of(role) & WRITES for role in Role)]


TEXTS = (
    "²",
    "9" * 400,
    "-1",
    "1e999",
    "nan",
    "\x7f\u202e",
    "a/" * 300 + "..",
    "%00",
    "9999-12-31T23:59:59-23:59",
    "//[",
    "/console/\r\nx: y",
)
HOSTILE: Mapping[str, tuple[Any, ...]] = {
    "string": ("", "²", "9" * 300_000, "1s" * 100_000, "a/" * 100_000, "\x00", "\x1b[31m", "((" * 50_000, "\u202e" * 9),
    "integer": (2**63 - 1, -(2**63), 10**300, True, 1.5, "²"),
    "number": (1e308, -1e308, 5e-324, 10**300, "nan"),
    "array": ([], [None] * 100_000, ["a"] * 100_000, [[]] * 1000),
    "any": ("\x00", 1e308, [[]] * 1000, {"x" * 100_000: "y"}),
    "map": ({}, {str(n): None for n in range(50_000)}, {"x" * 100_000: "y"}, {"\x00": {}}),
}


class Leaf:
    """One place in an object, what may stand there, and whether the schema bounds it."""

    def __init__(self, path: str, type_: str, bounded: bool) -> None:
        self.path, self.type, self.bounded = path, type_, bounded


def leaves(
    schema: Mapping[str, Any], known: Mapping[str, Any], path: str = "", above: tuple[str, ...] = ()
) -> Iterator[Leaf]:
    """Every place below, by the model's own schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in above:
            yield from leaves(known[name], known, path, (*above, name))
        return
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from leaves(choice, known, path, above)
    keys = schema.keys()
    type_ = schema.get("type")
    if isinstance(type_, list):
        type_ = next(one for one in type_ if one != "null")
    match type_:
        case "string":
            yield Leaf(path, "string", bool(keys & {"maxLength", "enum", "const"}) or finite(schema.get("pattern", "")))
        case "array":
            yield Leaf(path, "array", "maxItems" in keys)
            yield from leaves(schema.get("items", {}), known, f"{path}[]", above)
        case "object":
            if "properties" not in keys and "additionalProperties" not in keys:
                yield Leaf(path, "map", "maxProperties" in keys)
            for name, inner in schema.get("properties", {}).items():
                yield from leaves(inner, known, f"{path}.{name}" if path else name, above)
            if schema.get("additionalProperties"):
                yield Leaf(path, "map", "maxProperties" in keys)
                if isinstance(schema["additionalProperties"], Mapping):
                    yield from leaves(schema["additionalProperties"], known, f"{path}{{}}", above)
        case "integer" | "number" as number:
            yield Leaf(path, number, bounded=True)  # 64 bits, and finite, for every document
        case None if not keys & {"anyOf", "oneOf", "allOf", "enum", "const"}:
            yield Leaf(path, "any", bounded=False)


def finite(pattern: str) -> bool:
    """Whether a pattern has a longest text: it is anchored, and nothing in it is repeated for ever."""
    without_sets = re.sub(r"\[(?:\\.|[^\]\\])*\]|\\.", "x", pattern)
    return pattern.startswith("^") and pattern.endswith("$") and not re.search(r"[*+]|,}", without_sets)


def pages(router: Router) -> Iterator[Route]:
    """Every page of the console."""
    yield from (route for route in router.routes if isinstance(route, Route))
    if isinstance(router.default, Router):
        yield from pages(router.default)


def filled(path: str) -> str:
    """The path of an operation or a page, for the job `there`."""
    known = {"namespace": TENANT_NAME, "name": "there", "digest": "sha256:" + "0" * 64, "path": "a", "action": "cancel"}
    return re.sub(r"{(\w+)(:\w+)?}", lambda found: known.get(found[1], "x"), path)


def places(kind: Kind) -> dict[str, Leaf]:
    schema = kind.model.model_json_schema(by_alias=True)
    found = leaves(schema, schema.get("$defs", {}))
    return {leaf.path: leaf for leaf in found if leaf.path.startswith(("spec", "metadata"))}


def with_(path: str, value: Any) -> Any:
    """An object with a value at a path."""
    part, _, rest = path.partition(".")
    inner = with_(rest, value) if rest else value
    while part.endswith(("[]", "{}")):
        inner = [inner] if part.endswith("[]") else {"key": inner}
        part = part[:-2]
    return {part: inner}


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = {key: merged(one[key], other[key]) for key in one.keys() & other.keys() if isinstance(one[key], dict)}
    return {**one, **other, **both}
