from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.api.resources.patching import APPLIED_ANNOTATION, apply, json_patch, merge
from isthmus.errors import Invalid, TooLarge

scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
)
objects = st.dictionaries(st.text("abc", max_size=2), json_values, max_size=4)


# The examples of RFC 7386, appendix A.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_follows_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert merge(target, patch) == result


@given(objects, objects)
def test_merge_changes_neither_argument_and_is_idempotent(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    once = merge(target, patch)
    assert (target, patch) == before
    assert merge(once, patch) == once


@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "q"}], {"foo": "bar", "baz": "q"}),
        ({"foo": ["a", "b"]}, [{"op": "add", "path": "/foo/1", "value": "q"}], {"foo": ["a", "q", "b"]}),
        ({"foo": ["a"]}, [{"op": "add", "path": "/foo/-", "value": "q"}], {"foo": ["a", "q"]}),
        ({"foo": 1, "baz": 2}, [{"op": "remove", "path": "/baz"}], {"foo": 1}),
        ({"foo": ["a", "b"]}, [{"op": "remove", "path": "/foo/0"}], {"foo": ["b"]}),
        ({"foo": 1}, [{"op": "replace", "path": "/foo", "value": 2}], {"foo": 2}),
        ({"foo": [1, 2]}, [{"op": "replace", "path": "/foo/1", "value": 3}], {"foo": [1, 3]}),
        ({"a": {"x": 1}, "b": {}}, [{"op": "move", "from": "/a/x", "path": "/b/y"}], {"a": {}, "b": {"y": 1}}),
        ({"a": {"x": 1}}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": {"x": 1}, "b": {"x": 1}}),
        ({"a/b": 1, "m~n": 2}, [{"op": "replace", "path": "/a~1b", "value": 9}], {"a/b": 9, "m~n": 2}),
        ({"m~n": 2}, [{"op": "test", "path": "/m~0n", "value": 2}], {"m~n": 2}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ],
)
def test_json_patch_follows_the_rfc(target: Any, operations: Any, result: Any) -> None:
    before = copy.deepcopy(target)
    assert json_patch(target, operations) == result
    assert target == before


@pytest.mark.parametrize(
    "operations",
    [
        {"op": "add"},
        ["x"],
        [{"op": "dance", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "path": "/none/x", "value": 1}],
        [{"op": "remove", "path": "/none"}],
        [{"op": "remove", "path": ""}],
        [{"op": "replace", "path": "/none", "value": 1}],
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "add", "path": "/list/7", "value": 2}],
        [{"op": "add", "path": "/list/01", "value": 2}],
        [{"op": "move", "from": "/deep", "path": "/deep/x"}],
        [{"op": "copy", "path": "/b"}],
    ],
)
def test_json_patch_says_which_operation_is_wrong(operations: Any) -> None:
    with pytest.raises(Invalid) as caught:
        json_patch({"a": 1, "list": [1], "deep": {"x": {}}}, operations)
    assert "patch" in str(caught.value)


def test_json_patch_copies_cannot_explode() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/k{i}"} for i in range(60)]
    with pytest.raises(TooLarge):
        json_patch({"a": {"text": "x" * 1000}}, doubling)


def test_json_patch_has_a_limit_of_operations() -> None:
    with pytest.raises(TooLarge):
        json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)


def test_apply_takes_away_what_the_same_manager_no_longer_wants() -> None:
    first = apply(
        {}, {"metadata": {"name": "x", "labels": {"a": "1", "b": "1"}}, "spec": {"n": 1, "m": {"k": 1}}}, "me"
    )
    first["spec"]["other"] = "somebody else's"
    second = apply(first, {"metadata": {"name": "x", "labels": {"a": "2"}}, "spec": {"n": 3}}, "me")
    assert second["metadata"]["labels"] == {"a": "2"}
    assert second["spec"] == {"n": 3, "other": "somebody else's"}


def test_apply_leaves_what_another_manager_wants() -> None:
    first = apply({}, {"metadata": {"labels": {"a": "1"}}}, "one")
    second = apply(first, {"metadata": {"labels": {"b": "1"}}}, "two")
    third = apply(second, {"metadata": {}}, "one")
    assert third["metadata"]["labels"] == {"b": "1"}
    assert set(third["metadata"]["annotations"]) == {f"{APPLIED_ANNOTATION}one", f"{APPLIED_ANNOTATION}two"}


def test_apply_twice_is_the_same_as_once() -> None:
    wanted = {"metadata": {"name": "x", "annotations": {"a": "b"}}, "spec": {"list": [1, {"x": 1}], "deep": {"er": 1}}}
    once = apply({}, wanted, "a manager/with strange:name")
    assert apply(once, wanted, "a manager/with strange:name") == once


def test_apply_survives_a_broken_annotation() -> None:
    current = {"metadata": {"annotations": {f"{APPLIED_ANNOTATION}me": "{not json"}}, "spec": {"n": 1}}
    assert apply(current, {"metadata": {}, "spec": {"m": 1}}, "me")["spec"] == {"n": 1, "m": 1}
