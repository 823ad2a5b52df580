"""Passes: what a browser shows to get into one instance.

The console, which knows who signed in, gives the browser a **ticket** for one instance: sealed, good for a minute and
for one use. At the instance's own address it is exchanged for a **cookie** of that host alone, sealed too. Both hold
the token of who signed in, the uid of the instance and the word of the session: the token may end, the instance may be
deleted and another be made with its name, and she may sign out; each is looked at with every request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.fernet import Fernet, InvalidToken

PASS_SECONDS = 12 * 3600
TICKET_SECONDS = 60
_TICKET, _COOKIE = "ticket", "cookie"


@dataclass(frozen=True, slots=True)
class Pass:
    """Who comes, and into which instance."""

    token: str
    instance: str
    """Its uid."""
    word: str
    """Of the session of the console; empty where there is none."""
    ends: float

    @property
    def header(self) -> bytes:
        """What the authenticator takes."""
        return b"Bearer " + self.token.encode("latin-1", "replace")


class Passes:
    """Makes and reads passes; the key is derived from the console's."""

    def __init__(self, key: str, clock: Callable[[], float] = time.time) -> None:
        derived = hashlib.sha256(b"isthmus passes of instances\0" + key.encode()).digest()
        self._seal = Fernet(base64.urlsafe_b64encode(derived))
        self._clock = clock
        self._used: dict[str, float] = {}

    def ticket(self, token: str, instance: str, word: str) -> str:
        """A ticket, good for a minute."""
        return self._make(_TICKET, Pass(token, instance, word, self._clock() + TICKET_SECONDS))

    def use_ticket(self, ticket: str) -> Pass | None:
        """What a ticket was made for, once; None: it is none, or was used, or is too old."""
        found = self._read(_TICKET, ticket)
        now, mark = self._clock(), hashlib.sha256(ticket.encode("utf-8", "replace")).hexdigest()
        self._used = {one: ends for one, ends in self._used.items() if ends > now}
        if found is None or mark in self._used:
            return None
        self._used[mark] = found.ends
        return found

    def cookie(self, found: Pass) -> str:
        """The cookie that a ticket is exchanged for."""
        return self._make(_COOKIE, Pass(found.token, found.instance, found.word, self._clock() + PASS_SECONDS))

    def read_cookie(self, cookie: str) -> Pass | None:
        """The pass of a cookie; None: it is not one of ours, or over."""
        return self._read(_COOKIE, cookie)

    def _make(self, purpose: str, made: Pass) -> str:
        content = json.dumps([purpose, made.token, made.instance, made.word, made.ends])
        return self._seal.encrypt(content.encode()).decode()

    def _read(self, purpose: str, text: str) -> Pass | None:
        try:
            said, *rest = json.loads(self._seal.decrypt(text.encode("latin-1", "replace")))
            found = Pass(*rest)
        except (InvalidToken, ValueError, TypeError):
            return None
        return found if said == purpose and found.ends > self._clock() else None
