"""Tokens for slurmrestd are signed as slurmctld checks them, whatever the key file holds."""

from __future__ import annotations

import base64
import hmac
import json
from pathlib import Path

import pytest

from isthmus.engines.slurm.settings import RestSettings
from isthmus.engines.slurm.transports import tokens
from isthmus.errors import Misconfigured

PEM = b"-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize("key", [bytes(range(32)), b"short", PEM], ids=["random", "short", "as openssl genrsa writes"])
def test_a_token_is_signed_with_the_bytes_of_the_key_file(key: bytes) -> None:
    """Checked here by hand, by RFC 7515."""
    head, claims, signature = tokens.make(key, "ada", 1000.0).split(".")

    def plain(part: str) -> bytes:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))

    assert json.loads(plain(head)) == {"alg": "HS256", "typ": "JWT"}
    assert json.loads(plain(claims)) == {"exp": 1900, "iat": 700, "sun": "ada"}
    assert plain(signature) == hmac.digest(key, f"{head}.{claims}".encode(), "sha256")


def test_an_empty_key_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"")
    with pytest.raises(Misconfigured, match="is empty"):
        tokens.Tokens(RestSettings(url="http://x", key_file=tmp_path / "key")).of("ada")
