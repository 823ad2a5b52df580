"""Manifests as people write them, and as attackers do."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from isthmus.cli.manifests import parse_manifests, read_manifests
from isthmus.errors import Invalid, TooLarge


def test_several_documents_lists_and_json() -> None:
    text = b"kind: Job\nmetadata: {name: a}\n---\n---\nkind: List\nitems:\n- {kind: Site, metadata: {name: b}}\n"
    assert [obj["metadata"]["name"] for obj in parse_manifests(text, "x")] == ["a", "b"]
    assert parse_manifests(b'{"kind": "Job"}', "x") == [{"kind": "Job"}]


def test_files_folders_and_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.yml").write_text("kind: B")
    (tmp_path / "a.yaml").write_text("kind: A")
    (tmp_path / "c.txt").write_text("not a manifest: [")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"kind: C")))
    assert [obj["kind"] for obj in read_manifests([str(tmp_path), "-"])] == ["A", "B", "C"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(Invalid, match="no manifest"):
        read_manifests([str(tmp_path / "empty")])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"a: b: c", "cannot be read"),
        (b"- 1", "holds a list"),
        (b"kind: List\nitems: [3]", "not an object"),
        (b"kind: Job\nmetadata: [1]", "not an object"),
        (b"a: !!python/object/apply:os.system [id]", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (
            b"a: &a [x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(8)),
            "aliases",
        ),
        (b"a: &x [*x]", "inside"),
        (b"[" * 1000 + b"]" * 1000, "nested"),
        (b"{" * 100_000, "nested"),
    ],
)
def test_what_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        parse_manifests(text, "x.yaml")


def test_too_large() -> None:
    with pytest.raises(TooLarge):
        parse_manifests(b"#" * (33 << 20), "x.yaml")


def test_a_mistake_is_told_with_its_file_and_line() -> None:
    with pytest.raises(Invalid, match=r"^x\.yaml, line 3 cannot be read: .*expected") as caught:
        parse_manifests(b"a: b\nkind: [x\n  y: }\n", "x.yaml")
    assert "byte string" not in caught.value.message
    with pytest.raises(Invalid, match=r"^x\.yaml, line 2 cannot be read: the key 'a' is there twice"):
        parse_manifests(b"a: 1\na: 2\n", "x.yaml")
