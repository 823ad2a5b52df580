"""Sealed texts open with their key, at their place, and nowhere else."""

from __future__ import annotations

from isthmus._kit.sealing import Sealer, new_key


def test_a_sealed_text_opens_only_where_it_belongs() -> None:
    sealer = Sealer(new_key())
    sealed = sealer.seal("hunter2", "a/b")
    assert "hunter2" not in sealed
    assert sealed != sealer.seal("hunter2", "a/b")
    assert sealer.open(sealed, "a/b") == "hunter2"
    assert sealer.open(sealed, "a/c") is None
    assert Sealer(new_key()).open(sealed, "a/b") is None
    for broken in ("", "v1:", "v1:AAAA", sealed[:-4], sealed + "AAAA", "hunter2", "v1:\u00e4"):
        assert sealer.open(broken, "a/b") is None
