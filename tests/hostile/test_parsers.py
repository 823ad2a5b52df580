"""Texts, numbers and times at their edges: every parser gives a value or refuses; nothing else comes out of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus._kit.clock import parse_timestamp, timestamp
from isthmus._kit.durations import parse_duration
from isthmus._kit.globs import PathGlob, segment
from isthmus._kit.quantities import parse_bytes, parse_cpus
from isthmus.api.resources.patching import apply, json_patch, merge
from isthmus.client.ignoring import sort_out
from isthmus.engines.collecting import MAX_DEPTH, find_matches
from isthmus.engines.patterns import OutputPattern
from isthmus.errors import Invalid
from isthmus.resources.frame.selectors import parse_fields, parse_labels
from isthmus.resources.frame.validation import MAX_CAUSES, parse, validate
from isthmus.resources.jobs import expand_indices
from isthmus.resources.kinds import EXPERIMENT, JOB
from isthmus.resources.work.expressions import parse_expression
from isthmus.resources.work.trees import Tree, TreeFile
from isthmus.store.paging import decode_position

few = settings(max_examples=60)
DIGITS = "0123456789²٣१Ⅷ"
"""Some that `isdigit` takes and `int` does not, and some that both take and no machine writes."""

texts = st.one_of(
    st.text(max_size=80),
    st.text(alphabet=DIGITS + ".:-+smhdwPTZGiM ,()!=", max_size=80),
    st.builds(lambda text, count: text * count, st.text(min_size=1, max_size=8), st.integers(1, 3000)),
)
numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, -1, 2**31, 2**53, 2**63 - 1, 2**63, 10**18]),
    st.floats(allow_nan=True, allow_infinity=True),
)
times = st.one_of(
    st.datetimes(timezones=st.just(UTC)).map(timestamp),
    st.builds(
        "{:04d}-{:02d}-{:02d}T{:02d}:00:00{}{:02d}:{:02d}".format,
        st.sampled_from([0, 1, 1969, 1970, 2026, 8999, 9000, 9999]),
        st.sampled_from([0, 1, 12, 13]),
        st.sampled_from([0, 1, 31, 32]),
        st.sampled_from([0, 23, 24]),
        st.sampled_from(["+", "-"]),
        st.sampled_from([0, 14, 23, 24]),
        st.sampled_from([0, 59, 60]),
    ),
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | texts
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a parser gives; 0 if it refuses, which it must do in few words."""
    refusals: tuple[type[Exception], ...] = (ValueError, Invalid)
    try:
        return function(*arguments)
    except refusals as error:
        found = error
    causes = found.causes if isinstance(found, Invalid) else ()
    longest = [len(str(found)) / 20, *(max(len(cause.message), len(cause.field) * 2) for cause in causes)]
    assert len(causes) <= MAX_CAUSES
    assert max(longest) <= 4000, "a strange character is shown in ten"
    return 0


@few
@given(texts)
def test_durations(text: str) -> None:
    assert outcome(parse_duration, text) >= 0


@few
@given(texts | numbers)
def test_amounts(value: Any) -> None:
    for parser in (parse_bytes, parse_cpus):
        assert outcome(parser, value) >= 0


@few
@given(texts | times)
def test_times(text: str) -> None:
    found = outcome(parse_timestamp, text)
    assert found == 0 or found.tzinfo is UTC


@few
@given(times | texts)
def test_times_of_objects_leave_room_for_sums(text: str) -> None:
    try:
        made = validate(JOB, {"metadata": {"name": "x"}, "spec": {"command": ["x"], "deadline": text}})
    except Invalid:
        return
    moment = parse_timestamp(made["spec"]["deadline"])
    for years in (-900, 900):
        assert moment.replace(year=max(1, moment.year + years), day=1)
    assert datetime(1970, 1, 1, tzinfo=UTC) <= moment < datetime(9000, 1, 1, tzinfo=UTC)


@few
@given(texts)
def test_selectors_expressions_indices_and_tokens(text: str) -> None:
    for parser in (parse_labels, lambda text: parse_fields(text, JOB.fields), decode_position):
        outcome(parser, text)
    for other in (parse_expression, expand_indices):
        outcome(other, text)


@few
@given(plain)
def test_whatever_is_sent_as_a_spec_is_refused_in_few_words(spec: Any) -> None:
    for kind in (JOB, EXPERIMENT):
        outcome(validate, kind, {"metadata": {"name": "x"}, "spec": spec})


def test_of_very_many_faults_the_first_are_named() -> None:
    with pytest.raises(Invalid) as caught:
        validate(JOB, {"metadata": {"name": "x"}, "spec": {f"wrong-{n}": n for n in range(5000)}})
    assert len(caught.value.causes) == MAX_CAUSES
    assert "(and 4995 more)" in caught.value.message
    with pytest.raises(Invalid, match="invalid in 20000 places"):
        validate(JOB, {"metadata": {"name": "x"}, "spec": {f"wrong-{n}": n for n in range(20_000)}})


@few
@given(plain, plain, st.lists(st.fixed_dictionaries({
    "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "other"]),
    "path": st.sampled_from(["", "/", "/a", "/a/0", "/a/-", "/a/b", "/b"]),
}, optional={"from": st.sampled_from(["", "/a", "/a/0", "/b"]), "value": plain}), max_size=6))  # fmt: skip
def test_patches(target: Any, patch: Any, operations: list[Any]) -> None:
    start = {"a": target, "metadata": {}}
    before, sent = orjson.dumps(start), orjson.dumps(operations)
    merge(start, patch)
    apply(start, {"a": patch, "metadata": {}}, "somebody")
    outcome(json_patch, start, operations)
    assert orjson.dumps(start) == before
    assert orjson.dumps(operations) == sent, "a patch that is tried again must be the same"


# Patterns

names = st.text(alphabet="ab.-]", min_size=1, max_size=5)
paths = st.lists(names, min_size=1, max_size=5).map("/".join)
patterns = st.lists(
    st.one_of(st.just("**"), st.text(alphabet="ab.*?[]!-", min_size=1, max_size=6)), min_size=1, max_size=5
).map("/".join)


def _backtracking(pattern: list[str], path: list[str]) -> bool:
    """What a pattern means, in the plainest words, and slowly."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return _backtracking(pattern[1:], path) or (bool(path) and _backtracking(pattern, path[1:]))
    return bool(path) and bool(segment(pattern[0])(path[0])) and _backtracking(pattern[1:], path[1:])


@few
@given(patterns, paths)
def test_paths_match_as_the_plain_definition_says(pattern: str, path: str) -> None:
    parts = pattern.split("/")
    glob = PathGlob([None if part == "**" else segment(part) for part in parts])
    assert glob.matches(path) == _backtracking(parts, path.split("/"))


@few
@given(st.text(alphabet="ab*?", max_size=8), st.text(alphabet="ab", max_size=10))
def test_names_match_as_a_regular_expression_says(pattern: str, name: str) -> None:
    slow = re.compile(pattern.replace("*", "[ab]*").replace("?", "[ab]"))
    assert bool(segment(pattern)(name)) == bool(slow.fullmatch(name))


@few
@given(patterns, paths)
def test_output_patterns_give_an_answer(pattern: str, path: str) -> None:
    try:
        found = OutputPattern(pattern)
    except Invalid:
        return
    assert found.matches(path) == found.matches(path)
    if found.matches(path):
        assert found.matches(f"{path}/below")


@pytest.mark.parametrize(
    ("rules", "sent"),
    [
        ("*.log", ["a.txt", "d/a.txt", "d/e/x.txt"]),
        ("/a.*", ["d/a.log", "d/a.txt", "d/e/x.txt"]),
        ("d/", ["a.log", "a.txt"]),
        ("d/*\n!d/e", ["a.log", "a.txt", "d/e/x.txt"]),
        ("**/e/**", ["a.log", "a.txt", "d/a.log", "d/a.txt"]),
        ("*\n!*/\n!*.txt", ["a.txt", "d/a.txt", "d/e/x.txt"]),
        ("d/**/x.txt", ["a.log", "a.txt", "d/a.log", "d/a.txt"]),
        ("a[.]t?t", ["a.log", "d/a.log", "d/e/x.txt"]),
        ("[^a]*", ["a.log", "a.txt"]),
        ("\\!a\n#d\n\n", ["a.log", "a.txt", "d/a.log", "d/a.txt", "d/e/x.txt"]),
        ("d//", ["a.log", "a.txt", "d/a.log", "d/a.txt", "d/e/x.txt"]),
    ],
)  # fmt: skip
def test_ignore_rules_mean_what_they_mean_to_git(rules: str, sent: list[str]) -> None:
    """The right-hand sides are what `git ls-files -co --exclude-standard` says."""
    there = ["a.log", "a.txt", "d/a.log", "d/a.txt", "d/e/x.txt"]
    assert sort_out(there, {".gitignore": rules})[0] == sent


@few
@given(st.lists(paths, max_size=8, unique=True), st.text(alphabet="ab.*?[]!-/\\#\n ", max_size=40))
def test_ignore_rules_take_anything(found: list[str], rules: str) -> None:
    sent, _ = sort_out(found, {".gitignore": rules})
    assert set(sent) <= set(found)


@few
@given(st.lists(paths, max_size=8))
def test_trees_refuse_clashes_however_they_are_ordered(found: list[str]) -> None:
    files = [{"path": path, "digest": "sha256:" + "0" * 64} for path in found if ".." not in path.split("/")]
    files = [file for file in files if "." not in file["path"].split("/")]
    kept = [file["path"] for file in files]
    clash = len(set(kept)) < len(kept) or any(other.startswith(f"{path}/") for path in kept for other in kept)
    try:
        assert isinstance(parse(Tree, {"files": files}).files[0] if files else None, TreeFile | None)
        assert not clash
    except Invalid:
        assert clash


def test_what_lies_too_deep_to_be_looked_at_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    here = tmp_path / "deep"
    here.mkdir()
    for _ in range(MAX_DEPTH + 5):
        here = here / "d"
        here.mkdir()
    (here / "result").write_text("x")
    for pattern in ("**/result", "deep/**", "deep/d/**/result"):
        [found] = find_matches(tmp_path, [pattern], os.getuid())
        assert found.skipped is not None
        assert "lies too deep" in found.skipped
    assert find_matches(tmp_path, ["*/result", "other/**"], os.getuid()) == [], "nobody asked for what is there"
