"""What of a request reaches a program, and what of its answer a browser."""

from __future__ import annotations

import pytest

from isthmus.proxy.headers import cookie_in, instance_of, own_cookie, to_browser, to_program, token_in

DOMAIN = "instances.example.org"


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("demo--ada.instances.example.org", ("demo", "ada")),
        ("DEMO--Ada.Instances.example.org:8443", ("demo", "ada")),
        ("demo--a--b.instances.example.org", ("demo", "a--b")),
        ("demo--a.b.instances.example.org", ("demo", "a.b")),
        ("instances.example.org", None),
        ("demo.instances.example.org", None),
        ("--ada.instances.example.org", None),
        ("demo--.instances.example.org", None),
        ("demo--ada.instances.example.org.evil.org", None),
        ("demo--ada.instances.example.orgx", None),
        ("demo--ada.instances.example.org.instances.example.org", None),
        ("example.org", None),
        ("", None),
    ],
)
def test_whose_host_it_is(host: str, found: tuple[str, str] | None) -> None:
    assert instance_of(host, DOMAIN) == found


def test_what_is_ours_does_not_reach_the_program() -> None:
    sent = [
        (b"host", b"demo--ada.instances.example.org"),
        (b"cookie", b"a=1; isthmus-instance=secret; __Host-isthmus-instance=secret; b=2"),
        (b"cookie", b"isthmus-instance=secret"),
        (b"authorization", b"Bearer ist_admin_secret"),
        (b"connection", b"close, x-secret-hop"),
        (b"x-secret-hop", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"7"),
        (b"upgrade", b"h2c"),
        (b"te", b"trailers"),
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"accept", b"*/*"),
    ]
    given = to_program(sent, scheme="https", client="10.0.0.1")
    assert given == [
        (b"host", b"demo--ada.instances.example.org"),
        (b"cookie", b"a=1; b=2"),
        (b"accept", b"*/*"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"demo--ada.instances.example.org"),
        (b"x-forwarded-for", b"10.0.0.1"),
    ]


def test_what_is_the_programs_own_does() -> None:
    sent = [(b"authorization", b"Basic eDp5"), (b"authorization", b"token abc")]
    assert [pair for pair in to_program(sent, scheme="http", client="") if pair[0] == b"authorization"] == sent
    assert token_in(sent) is None
    assert token_in([(b"authorization", b"bearer  ist_x_y")]) == b"bearer  ist_x_y"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b"a=1; Domain=example.org; Path=/", b"a=1; Path=/"),
        (b"a=1; domain = .org ; HttpOnly", b"a=1; HttpOnly"),
        (b"a=1", b"a=1"),
        (b"isthmus-instance=x; Path=/", None),
        (b" isthmus-instance =x", None),
        (b"__Host-isthmus-instance=x", None),
        (b"=x", None),
        (b"", None),
    ],
)
def test_cookies_of_programs_are_for_their_own_host(line: bytes, kept: bytes | None) -> None:
    assert own_cookie(line) == kept
    assert to_browser([(b"Set-Cookie", line)]) == ([(b"set-cookie", kept)] if kept else [])


def test_answers_lose_what_was_for_one_connection() -> None:
    said = [(b"Connection", b"X-Hop"), (b"x-hop", b"1"), (b"Transfer-Encoding", b"chunked"), (b"ETag", b"e")]
    assert to_browser(said) == [(b"etag", b"e")]


def test_cookies_are_found() -> None:
    assert cookie_in([(b"cookie", b"a=1;b=2"), (b"cookie", b" c=3=4 ")], "c") == "3=4"
    assert cookie_in([(b"cookie", b"ab=1")], "a") is None
