"""How an agent proves who it is: by a signature with the key that was made on its machine. Pure.

The control plane keeps the public key and draws a number for each connection; the agent signs it together with its
site, its machine and its process. A key has no date on which it expires, because the clocks of small machines are
often wrong: it is good until it is revoked or another takes its place.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

INVITATION = "isi_"
_RAW = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)


class AgentIdentity(NamedTuple):
    """What is known of the agent of a site."""

    site: str
    key: str
    """Public, as `ed25519:…`."""
    machine: str
    """A mark of the machine and of its folder: another machine with the same key has another."""


class Proof(NamedTuple):
    """What an agent says of itself when it connects."""

    site: str
    machine: str
    session: str
    """Of its process: the same after a broken connection, another after a restart."""
    nonce: str

    def text(self) -> bytes:
        """What is signed. Parts are of bounded length and separated by what none of them contains."""
        return "\0".join(("isthmus agent connection 1", *self)).encode()


def new_key() -> tuple[str, str]:
    """A private key, in PEM, and its public one."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), public_of(private.decode())


def public_of(private: str) -> str:
    """The public key of a private one; raises ValueError."""
    return "ed25519:" + base64.b64encode(_load(private).public_key().public_bytes(*_RAW)).decode()


def sign(private: str, proof: Proof) -> str:
    """A signature; raises ValueError if that is no key."""
    return base64.b64encode(_load(private).sign(proof.text())).decode()


def verify(public: str, proof: Proof, signature: str) -> bool:
    """Whether the holder of the key signed this."""
    try:
        _public(public).verify(base64.b64decode(signature, validate=True), proof.text())
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


def is_key(public: str) -> bool:
    """Whether this is a public key at all."""
    try:
        _public(public)
    except (ValueError, binascii.Error):
        return False
    return True


def mark_of(*parts: str) -> str:
    """A mark that says whether two things are the same, and nothing else of them."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _public(public: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(base64.b64decode(public.removeprefix("ed25519:"), validate=True))


def _load(private: str) -> Ed25519PrivateKey:
    key = serialization.load_pem_private_key(private.encode(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the key of an agent must be of the kind Ed25519")
    return key
