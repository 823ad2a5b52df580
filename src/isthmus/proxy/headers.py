"""What of a request reaches a program, and what of its answer a browser. Pure.

What belongs to one connection stays on it. Our cookie, our tokens and what says who called are ours; a program can
neither see nor set them. Its own cookies are for its own host: none for the domains above, where others would be sent
it.
"""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.resources.instances import of_label
from isthmus.resources.tokens import PREFIX

Headers = list[tuple[bytes, bytes]]
HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
})  # fmt: skip
_OURS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"})
COOKIES = frozenset({"isthmus-instance", "__Host-isthmus-instance"})
"""Names of the cookie that opens an instance, in the clear and over TLS."""


def instance_of(host: str, domain: str) -> tuple[str, str] | None:
    """The name and tenant of the instance whose host this is; None if it is no instance's."""
    bare = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    label, dot, rest = bare.lower().partition(f".{domain}")
    return of_label(label) if dot and not rest else None


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The first value of a header."""
    return next((value for key, value in headers if key == name), None)


def token_in(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The Authorization header, if it bears a token of ours."""
    found = header(headers, b"authorization")
    return found if found is not None and _is_ours(found) else None


def _is_ours(authorization: bytes) -> bool:
    scheme, _, secret = authorization.decode("latin-1").strip().partition(" ")
    return scheme.lower() == "bearer" and secret.strip().startswith(PREFIX)


def cookie_in(headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
    """The value of a cookie that was sent."""
    for key, value in headers:
        if key == b"cookie":
            for pair in value.decode("latin-1").split(";"):
                found, _, content = pair.strip().partition("=")
                if found == name:
                    return content
    return None


def to_program(headers: Iterable[tuple[bytes, bytes]], *, scheme: str, client: str) -> Headers:
    """The head of a request as the program gets it, but for its framing."""
    given = list(headers)
    named = _named_by_connection(given)
    host = header(given, b"host") or b""
    found: Headers = []
    for key, value in given:
        if key in HOP_BY_HOP or key in _OURS or key in named or key in (b"content-length", b"expect"):
            continue
        if key == b"authorization" and _is_ours(value):
            continue
        if key == b"cookie":
            value = _without_ours(value)
            if not value:
                continue
        found.append((key, value))
    found += [(b"x-forwarded-proto", scheme.encode()), (b"x-forwarded-host", host)]
    return [*found, (b"x-forwarded-for", client.encode())] if client else found


def to_browser(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The head of an answer as the browser gets it."""
    given = list(headers)
    named = _named_by_connection(given)
    found: Headers = []
    for key, value in given:
        name = key.lower()
        if name in HOP_BY_HOP or name in named or name == b"date":  # the server says when it answers
            continue
        if name == b"set-cookie":
            kept = own_cookie(value)
            if kept is not None:
                found.append((name, kept))
        else:
            found.append((name, value))
    return found


def own_cookie(line: bytes) -> bytes | None:
    """A cookie that a program sets, for its own host alone; None if it is not for it to set."""
    parts = [part.strip() for part in line.decode("latin-1").split(";")]
    name = parts[0].partition("=")[0].strip()
    if not name or name in COOKIES:
        return None
    kept = [parts[0], *(part for part in parts[1:] if part.partition("=")[0].strip().lower() != "domain")]
    return "; ".join(kept).encode("latin-1")


def set_cookie(name: str, value: str, seconds: int, *, secure: bool) -> bytes:
    """The cookie that opens an instance."""
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}".encode()


def _without_ours(value: bytes) -> bytes:
    pairs = (pair.strip() for pair in value.decode("latin-1").split(";"))
    kept = [pair for pair in pairs if pair and pair.partition("=")[0].strip() not in COOKIES]
    return "; ".join(kept).encode("latin-1")


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    """Headers that `Connection` says are for one connection only."""
    values = [value for key, value in headers if key.lower() == b"connection"]
    return frozenset(word.strip().lower() for value in values for word in value.split(b","))
