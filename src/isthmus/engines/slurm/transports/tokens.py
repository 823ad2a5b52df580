"""Tokens for slurmrestd: JSON Web Tokens that name the person (`sun`), signed with the site's key (HS256).

Made for each person and for a few minutes only, so that one that leaks is soon worth nothing.
"""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.engines.slurm.settings import RestSettings
from isthmus.errors import Misconfigured

if TYPE_CHECKING:
    from jwt import PyJWS

LIFE_SECONDS = 900
_RENEW_BEFORE = 120


class Tokens:
    """Tokens by account, made or read when they are needed."""

    def __init__(self, settings: RestSettings) -> None:
        self._settings = settings
        self._made: dict[str, tuple[float, str]] = {}

    def of(self, user: str) -> str:
        """A token for this account; raises Misconfigured."""
        now = time.time()
        until, token = self._made.get(user, (0.0, ""))
        if until - now > _RENEW_BEFORE:
            return token
        if self._settings.key_file is not None:
            token, until = make(self._key(), user, now), now + LIFE_SECONDS
        elif self._settings.token_file is not None:
            # Read again now and then: whoever renews it writes it there.
            token, until = _read(Path(self._settings.token_file.replace("{user}", user))), now + _RENEW_BEFORE + 30
        else:
            raise Misconfigured("slurmrestd wants tokens; set rest.keyFile or rest.tokenFile of the site.")
        self._made[user] = (until, token)
        return token

    def _key(self) -> bytes:
        assert self._settings.key_file is not None
        try:
            key = self._settings.key_file.read_bytes()
        except OSError as error:
            raise Misconfigured(f"The key {self._settings.key_file} cannot be read: {error.strerror}.") from None
        if not key:
            raise Misconfigured(f"The key {self._settings.key_file} is empty; copy the site's jwt_hs256.key there.")
        return key


def make(key: bytes, user: str, now: float, life: float = LIFE_SECONDS) -> str:
    """A signed token."""
    # The clocks of two machines may be minutes apart.
    claims = {"exp": int(now + life), "iat": int(now) - 300, "sun": user}
    return _signer().encode(json.dumps(claims).encode(), key, "HS256")


@cache
def _signer() -> PyJWS:
    """PyJWT, with whatever bytes the key file holds as the secret, as Slurm itself does.

    Slurm's documentation long said to make the key with `openssl genrsa`. PyJWT refuses such text as a secret of HS256,
    and short ones, to protect those who verify tokens of strangers. Here nothing is verified.
    """
    import jwt  # tens of milliseconds, and only where tokens are made
    from jwt.algorithms import HMACAlgorithm

    class AnyBytes(HMACAlgorithm):
        def prepare_key(self, key: str | bytes) -> bytes:
            return key if isinstance(key, bytes) else key.encode()

        def check_key_length(self, key: bytes) -> None:
            return None

    signer = jwt.PyJWS()
    signer.unregister_algorithm("HS256")
    signer.register_algorithm("HS256", AnyBytes(HMACAlgorithm.SHA256))
    return signer


def _read(path: Path) -> str:
    try:
        return path.read_text().strip().removeprefix("SLURM_JWT=")
    except OSError as error:
        raise Misconfigured(f"The token {path} cannot be read: {error.strerror}.") from None
