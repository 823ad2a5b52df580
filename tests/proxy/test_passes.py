"""Passes are for one instance, for a while, and tickets for one use."""

from __future__ import annotations

from isthmus.console.sessions import new_key
from isthmus.proxy.passes import PASS_SECONDS, TICKET_SECONDS, Passes


def test_a_ticket_becomes_a_cookie_once() -> None:
    clock = [1000.0]
    passes = Passes(key := new_key(), lambda: clock[0])
    ticket = passes.ticket("ist_a_b", "uid-1", "word")
    assert passes.read_cookie(ticket) is None, "a ticket is no cookie"
    found = passes.use_ticket(ticket)
    assert found is not None
    assert (found.header, found.instance, found.word) == (b"Bearer ist_a_b", "uid-1", "word")
    assert passes.use_ticket(ticket) is None
    cookie = passes.cookie(found)
    assert passes.use_ticket(cookie) is None, "a cookie is no ticket"
    kept = passes.read_cookie(cookie)
    assert kept is not None
    assert (kept.token, kept.instance) == ("ist_a_b", "uid-1")
    assert Passes(key, lambda: clock[0]).read_cookie(cookie) == kept, "every control plane with the key reads it"
    assert Passes(new_key(), lambda: clock[0]).read_cookie(cookie) is None
    clock[0] += PASS_SECONDS
    assert passes.read_cookie(cookie) is None


def test_what_is_no_pass() -> None:
    clock = [1000.0]
    passes = Passes(new_key(), lambda: clock[0])
    for text in ("", "x", "gAAAA", "é", "a" * 100_000):
        assert passes.read_cookie(text) is None
        assert passes.use_ticket(text) is None
    ticket = passes.ticket("t", "uid", "")
    clock[0] += TICKET_SECONDS
    assert passes.use_ticket(ticket) is None
