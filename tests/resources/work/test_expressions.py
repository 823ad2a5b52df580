from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.resources.work.expressions import (
    Compare,
    Either,
    Every,
    Exists,
    Expression,
    Not,
    explain,
    matches,
    parse_expression,
    unordered,
)

LABELS = {"location": "IT", "price": "1.5", "vendor": "intel", "gpu": ""}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("location == IT and price < 2", True),
        ("location = IT", True),
        ("location == DE or price <= 1.5", True),
        ("not (vendor in (intel, amd))", False),
        ("vendor not in (arm)", True),
        ("gpu and not fpga", True),
        ("fpga", False),
        ("price > 1.50", False),
        ("price == 1.50", True),
        ('location == "IT"', True),
        ("missing != x", False),
        ("location < 3", False),
        ("location == DE or vendor == intel and price > 9", False),
    ],
)
def test_expressions_hold_or_not(text: str, holds: bool) -> None:
    assert matches(parse_expression(text), LABELS) is holds


@pytest.mark.parametrize(
    "text",
    ["", "and", "a ==", "a == and", "(a", "a)", "a in b", "a in ()", "a not b", "== b", "a b", "a; rm", "a == $(x)"],
)
def test_what_cannot_be_read_says_where(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|cannot read|empty"):
        parse_expression(text)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ValueError, match="nested"):
        parse_expression("(" * 1000 + "a" + ")" * 1000)
    with pytest.raises(ValueError, match="nested"):
        parse_expression("not " * 1000 + "a")


def test_the_explanation_names_the_part_that_fails_and_what_is_there() -> None:
    tree = parse_expression("location == IT and price < 1")
    assert explain(tree, LABELS) == "its price is 1.5, wanted price < 1"
    assert explain(tree, {"location": "DE"}) == "its location is DE, wanted location == IT"
    assert "no label region" in explain(parse_expression("region == EU"), LABELS)


words = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).filter(lambda w: w not in ("and", "or", "not", "in"))
trees = st.recursive(
    st.builds(Exists, words)
    | st.builds(Compare, words, st.sampled_from(["==", "!=", "<", ">"]), st.tuples(words))
    | st.builds(Compare, words, st.sampled_from(["in", "not in"]), st.lists(words, min_size=1, max_size=3).map(tuple)),
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(Every, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Either, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


@given(trees, st.dictionaries(words, words, max_size=4))
def test_a_tree_means_the_same_after_being_written_and_read(tree: Expression, labels: dict[str, str]) -> None:
    again = parse_expression(str(tree))
    assert matches(again, labels) is matches(tree, labels)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("price < cheap", "price < cheap"),
        ("location == IT and not (price >= 'two')", "price >= two"),
        ("a or b > c", "b > c"),
        ("price < 2 and location == IT", None),
        ("memory >= 1e3 or kind in (a, b)", None),
    ],
)
def test_what_can_never_hold_is_found(text: str, wrong: str | None) -> None:
    found = unordered(parse_expression(text))
    assert (str(found) if found else None) == wrong
