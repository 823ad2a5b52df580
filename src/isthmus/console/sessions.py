"""Sessions: a cookie instead of a header. The cookie holds the token; whether the session goes on is recorded on the
server (`session_records`).

The cookie is the user's token, the end of the session and a random word, sealed with the instance's key (Fernet:
encrypted and authenticated). Whoever presents it is the owner of that token and is asked for it again whenever the
token is revoked or expires, because every request goes through the authenticator. The key lies beside the files
that control planes share, so that every replica reads every cookie.

Forms carry a code made of the key and the session's random word. A foreign page can make the browser send the
cookie, but cannot know the code; where the browser says where a request comes from, that is checked as well.

Tickets are for the sign-in link that `isthmus console` prints: a random word in memory, good for one use and ten
minutes. Only its hash is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.fernet import Fernet, InvalidToken

SESSION_SECONDS = 12 * 3600
TICKET_SECONDS = 600
MAX_TICKETS = 1000


def new_key() -> str:
    """A key for an instance."""
    return Fernet.generate_key().decode()


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who signed in."""

    token: str
    word: str
    """Random; what the codes of this session's forms are made of."""
    ends: float

    @property
    def header(self) -> bytes:
        """What the API takes instead of the cookie."""
        return b"Bearer " + self.token.encode("latin-1", "replace")


class Sessions:
    """Seals and opens cookies, makes and checks codes and tickets."""

    def __init__(self, key: str, clock: Callable[[], float] = time.time) -> None:
        self._seal = Fernet(key.encode())
        self._secret = hashlib.sha256(b"isthmus console forms\0" + key.encode()).digest()
        self._clock = clock
        self._tickets: dict[str, tuple[str, float]] = {}

    def begin(self, token: str) -> tuple[Session, str]:
        """A new session and its cookie."""
        session = Session(token, secrets.token_urlsafe(18), self._clock() + SESSION_SECONDS)
        content = json.dumps([session.token, session.word, session.ends])
        return session, self._seal.encrypt(content.encode()).decode()

    def open(self, cookie: str) -> Session | None:
        """The session of a cookie; None if it is not one of ours, or over."""
        try:
            session = Session(*json.loads(self._seal.decrypt(cookie.encode("latin-1", "replace"))))
        except (InvalidToken, ValueError, TypeError):
            return None
        return session if session.ends > self._clock() else None

    def code(self, word: str) -> str:
        """What a form must carry."""
        return hmac.new(self._secret, word.encode(), hashlib.sha256).hexdigest()

    def right_code(self, word: str, code: str) -> bool:
        """Whether a form carries it."""
        return bool(word) and hmac.compare_digest(self.code(word).encode(), code.encode())

    def new_ticket(self, token: str) -> str:
        """A word that signs its bearer in as the owner of the token, once and soon."""
        now = self._clock()
        self._tickets = {ticket: kept for ticket, kept in self._tickets.items() if kept[1] > now}
        while len(self._tickets) >= MAX_TICKETS:
            self._tickets.pop(next(iter(self._tickets)))
        ticket = secrets.token_urlsafe(24)
        self._tickets[_hash(ticket)] = (token, now + TICKET_SECONDS)
        return ticket

    def ticket(self, ticket: str, *, use: bool = False) -> str | None:
        """The token behind a ticket, which is gone once it was used."""
        kept = self._tickets.get(_hash(ticket))
        if kept is None or kept[1] <= self._clock():
            return None
        if use:
            del self._tickets[_hash(ticket)]
        return kept[0]


def _hash(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "replace")).hexdigest()
