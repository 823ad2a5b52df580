from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from isthmus.api.documents import check_plain, parse_json, parse_yaml, read_document
from isthmus.errors import Invalid

pytestmark = pytest.mark.anyio


def test_yaml_makes_only_what_json_has() -> None:
    text = b"""
a: 2026-01-31T18:00:00Z
b: 01:30:00
c: [1, 2.5, true, null, ~, "x", yes, 0x10, 1e3]
d: |
  several
  lines
1: one
"""
    assert parse_yaml(text, 64) == {
        "a": "2026-01-31T18:00:00Z",
        "b": "01:30:00",
        "c": [1, 2.5, True, None, None, "x", "yes", 16, 1000.0],
        "d": "several\nlines\n",
        "1": "one",
    }


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff\u2028\u2029\x85")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", min_size=1), inner), max_leaves=20,
))  # fmt: skip
def test_json_is_read_alike_as_json_and_as_yaml(value: Any) -> None:
    body = orjson.dumps(value)
    assert parse_json(body, 64) == value
    assert parse_yaml(body, 64) == value


def _bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 12):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]")
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    "body",
    [
        _bomb(),
        b"a: &a [*a]",
        b"[" * 1000 + b"]" * 1000,
        b"{a: " * 1000 + b"1" + b"}" * 1000,
        b"\n".join(b" " * i + b"a:" for i in range(1000)),
        b"- " * 1000 + b"x",
        b"a: .nan",
        b"a: .inf",
        b"a: 99999999999999999999999",
        b"a: !!python/object:os.system [ls]",
        b"a: !!binary aGVsbG8=",
        b"a: !!set {x, y}",
        b"? [a, b]\n: 1",
        b"a: 1\na: 2",
        b"a: b: c",
        b"---\na: 1\n---\nb: 2",
        b"\xff\xfe\xff",
        b"a: \x00",
        b'a: "\\ud800"',
        b"a: *unknown",
        b"%TAG ! tag:x,2000:\n---\na: !foo bar",
        b"\t- x: [",
    ],
)
def test_yaml_made_to_hurt_is_refused(body: bytes) -> None:
    with pytest.raises((HTTPException, Invalid)) as caught:
        parse_yaml(body, 64)
    if isinstance(caught.value, HTTPException):
        assert caught.value.status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"[" * 100_000,
        b"[" * 1000 + b"]" * 1000,
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
    ],
)
def test_json_made_to_hurt_is_refused(body: bytes) -> None:
    with pytest.raises((HTTPException, Invalid)):
        parse_json(body, 64)


def test_small_aliases_are_fine() -> None:
    assert parse_yaml(b"a: &x {k: v}\nb: *x", 64) == {"a": {"k": "v"}, "b": {"k": "v"}}


def test_depth_is_counted_exactly() -> None:
    check_plain([[["x"]]], 3)
    with pytest.raises(Invalid):
        check_plain([[[["x"]]]], 3)


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"1", b"null"])
async def test_a_body_is_an_object(body: bytes) -> None:
    with pytest.raises(HTTPException, match="must be an object"):
        await read_document(body, "application/json", 64)


async def test_unknown_content_types_are_refused() -> None:
    with pytest.raises(HTTPException) as caught:
        await read_document(b"{}", "application/vnd.kubernetes.protobuf", 64)
    assert caught.value.status_code == 415


async def test_large_documents_are_read_too() -> None:
    text = "x" * 300_000
    assert await read_document(orjson.dumps({"a": text}), "application/json; charset=utf-8", 64) == {"a": text}
    assert await read_document(b"a: " + text.encode(), "application/yaml", 64) == {"a": text}
