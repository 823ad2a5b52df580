"""Sealing: short texts, encrypted with a key that is kept elsewhere, each bound to the place that it is for.

AES-256-GCM with a nonce of its own. What a text is bound to is not stored with it: whoever opens it says where it was
found, and a sealed text that was copied to another place does not open there.
"""

from __future__ import annotations

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_MARK = "v1:"
_NONCE_BYTES = 12


class Sealer:
    """Seals and opens with one key."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, text: str, place: str) -> str:
        """The text, readable by nobody without the key."""
        nonce = os.urandom(_NONCE_BYTES)
        return _MARK + base64.b64encode(nonce + self._cipher.encrypt(nonce, text.encode(), place.encode())).decode()

    def open(self, sealed: str, place: str) -> str | None:
        """The text; None if it was sealed with another key or for another place, or is damaged."""
        try:
            content = base64.b64decode(sealed.removeprefix(_MARK), validate=True)
            nonce, inside = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, inside, place.encode()).decode()
        except (InvalidTag, ValueError, binascii.Error):
            return None


def new_key() -> bytes:
    """A key."""
    return AESGCM.generate_key(KEY_BYTES * 8)
