from __future__ import annotations

import pytest
from pydantic import ValidationError

from isthmus.resources.work.trees import Tree, TreeFile, check_link, digest_of

D = digest_of(b"x")


def test_the_same_folder_gives_the_same_bytes() -> None:
    a, b = TreeFile(path="a", digest=D, size=1), TreeFile(path="b/c", digest=D, size=1)
    assert Tree(files=[a, b]).encode() == Tree(files=[b, a]).encode()


@pytest.mark.parametrize("path", ["", "/a", "a/../b", "..", "a//b", "./a", "a/", "a\0b", "x" * 5000])
def test_paths_stay_inside(path: str) -> None:
    with pytest.raises(ValidationError):
        TreeFile(path=path, digest=D)


@pytest.mark.parametrize(("path", "target"), [("a", "/etc/passwd"), ("a", ".."), ("d/a", "../../x"), ("a", "")])
def test_links_stay_inside(path: str, target: str) -> None:
    with pytest.raises(ValueError, match="outside"):
        check_link(path, target)


def test_a_link_inside_is_fine() -> None:
    assert check_link("d/a", "../b") == "../b"


def test_nothing_lies_below_a_file_or_a_link() -> None:
    with pytest.raises(ValidationError, match="not a folder"):
        Tree(files=[TreeFile(path="a", link="b"), TreeFile(path="a/c", digest=D)])
    with pytest.raises(ValidationError, match="twice"):
        Tree(files=[TreeFile(path="a", digest=D), TreeFile(path="a", digest=D)])
