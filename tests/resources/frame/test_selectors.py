from __future__ import annotations

import pytest

from isthmus.errors import Invalid
from isthmus.resources.frame.selectors import parse_fields, parse_labels

LABELS = {"app": "web", "tier": "front", "isthmus.dev/array": "x"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app!=web", False),
        ("other!=web", True),
        ("app in (web, api)", True),
        ("app notin (web)", False),
        ("other notin (web)", True),
        ("app", True),
        ("!app", False),
        ("!other,app", True),
        ("isthmus.dev/array=x", True),
        ("app=", False),
    ],
)
def test_label_selectors(text: str, holds: bool) -> None:
    assert parse_labels(text).matches(LABELS) is holds


@pytest.mark.parametrize("text", ["app in web", "=x", "a b", "a=b=c", ",", "app in (a"])
def test_a_selector_that_cannot_be_read(text: str) -> None:
    with pytest.raises(Invalid, match="selector"):
        parse_labels(text)


def test_field_selectors_know_their_fields() -> None:
    selector = parse_fields("status.phase=Running,metadata.name!=b", ("status.phase",))
    assert selector.matches({"status.phase": "Running", "metadata.name": "a"})
    assert not selector.matches({"status.phase": "Running", "metadata.name": "b"})
    with pytest.raises(Invalid, match=r"status\.phase"):
        parse_fields("spec.secret=1", ("status.phase",))
