"""Identifiers: uids that are never used twice, and short suffixes that people can read aloud."""

from __future__ import annotations

import secrets
import uuid

# No vowels and no look-alikes, so that a suffix is never a word and is easy to read aloud.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def new_uid() -> str:
    """A random UUID."""
    return str(uuid.uuid4())


def suffix(length: int = 5) -> str:
    """A random readable ending for a name, such as `x7k2p`."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
