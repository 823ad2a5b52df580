"""Verifying: is a token signed by its provider, meant for us, and of this time?

Only signatures with a private key count: with `none` nobody signed, and with a shared secret (HS256) whoever knows the
public key could. A key serves only the algorithms of its own type, so that none is taken for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from isthmus.errors import Unauthenticated
from isthmus.resources.identityproviders import IdentityProvider

LONGEST_TOKEN = 16_384
LEEWAY_SECONDS = 30.0
MOST_KEYS = 32
_LEAST_RSA_BITS = 2048
_OF_TYPE: Mapping[str, Sequence[str]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key of a provider, and the algorithms it may serve."""

    id: str
    key: Any
    algorithms: tuple[str, ...]


def read_keys(document: Any) -> list[SigningKey]:
    """The keys in a JWKS that tokens may be signed with; others are passed over. Raises ValueError if it is none."""
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it holds no list of keys")
    found = [key for item in listed[:MOST_KEYS] if (key := _key(item)) is not None]
    if not found:
        raise ValueError("it holds no key that tokens could be signed with")
    return found


def _key(item: Any) -> SigningKey | None:
    if not isinstance(item, dict) or item.get("use", "sig") != "sig":
        return None
    kind = item.get("kty")
    possible = _OF_TYPE.get(str(kind if kind == "RSA" else item.get("crv")), ())
    algorithms = tuple(name for name in possible if item.get("alg", name) == name)
    if not algorithms:
        return None
    try:
        key = jwt.PyJWK(item, algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if kind == "RSA" and getattr(key, "key_size", 0) < _LEAST_RSA_BITS:
        return None
    public = key.public_key() if hasattr(key, "private_bytes") else key
    return SigningKey(str(item.get("kid", "")), public, algorithms)


def issuer_in(token: str) -> str | None:
    """The issuer that a token names, before anything is believed of it; None if it is no token at all."""
    if len(token) > LONGEST_TOKEN or token.count(".") != 2:
        return None
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    issuer = claims.get("iss")
    return issuer if isinstance(issuer, str) else None


def key_for(token: str, keys: Sequence[SigningKey]) -> list[SigningKey]:
    """The keys that may have signed a token: by the name it gives, else all of them."""
    head = _head(token)
    name = head.get("kid")
    fitting = [key for key in keys if head.get("alg") in key.algorithms]
    return [key for key in fitting if key.id == name] if name is not None else fitting


def verify(token: str, provider: IdentityProvider, keys: Sequence[SigningKey]) -> dict[str, Any]:
    """The claims of a token; raises Unauthenticated that says what is wrong with it.

    One for several audiences must have been made for one of ours.
    """
    spec, name = provider.spec, provider.name
    allowed = {algorithm for names in _OF_TYPE.values() for algorithm in names}
    if _head(token).get("alg") not in allowed:
        raise Unauthenticated(f"the token of provider {name} is not signed with a key of the provider")
    reason = "no key of the provider fits it"
    audiences = [spec.client_id, *spec.audiences]
    for key in key_for(token, keys):
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                list(key.algorithms),
                audience=audiences,
                issuer=spec.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            reason = _plain(error)
            continue
        by = claims.get("azp")
        if isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1 and by is not None and by not in audiences:
            reason = "it was made for another program"
            continue
        return claims
    raise Unauthenticated(f"the token of provider {name} is refused: {reason}")


def _head(token: str) -> dict[str, Any]:
    try:
        head: dict[str, Any] = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        return {}
    return head


def _plain(error: Exception) -> str:
    words: tuple[tuple[type[Exception], str], ...] = (
        (jwt.ExpiredSignatureError, "it has expired; sign in again"),
        (jwt.ImmatureSignatureError, "it is not valid yet; is a clock wrong?"),
        (jwt.InvalidAudienceError, "it was made for another program"),
        (jwt.InvalidIssuerError, "it is of another issuer"),
        (jwt.MissingRequiredClaimError, "it lacks what every token must say"),
        (jwt.InvalidSignatureError, "its signature is wrong"),
    )
    return next((said for kind, said in words if isinstance(error, kind)), "it cannot be read")
