"""The file of a sign-in: the tokens of a provider, readable by their owner only, and renewed by whoever needs them.

The ID token is what the server is shown. It is renewed when four fifths of its time are over, by one process at a time:
a refresh token is often good once only. While the provider cannot be asked the token serves to its end. A process that
is killed between the provider's answer and the file costs a new sign-in, and nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import quote

from isthmus._kit.ids import suffix
from isthmus._kit.private_files import write_private
from isthmus.client.kubeconfigs import Access
from isthmus.errors import Misconfigured, Unauthenticated, Unavailable

from .provider_answers import ProviderAddresses, ProviderOffer, ProviderTokens, read_tokens
from .provider_asking import ask

_FRESH_SHARE = 0.8
_CLOCK_SECONDS = 60.0
_ENDING = ".signin"


@dataclass(frozen=True, slots=True)
class SignIn:
    """What is kept of it. Times are seconds of the epoch by this machine's clock, whatever the provider's says."""

    issuer: str
    client_id: str
    authorities: str | None
    token_address: str
    revocation_address: str | None
    subject: str
    id_token: str
    refresh_token: str | None
    received: float
    renewed_from: float
    ends: float

    def is_fresh(self, now: float) -> bool:
        """Whether it need not be renewed; a clock that was put back says nothing."""
        return self.received - _CLOCK_SECONDS <= now < self.renewed_from


def new_sign_in(offer: ProviderOffer, addresses: ProviderAddresses, tokens: ProviderTokens, now: float) -> SignIn:
    """What to keep of tokens that have just come."""
    return SignIn(
        offer.issuer,
        offer.client_id,
        offer.authorities,
        addresses.token,
        addresses.revocation,
        tokens.subject,
        tokens.id_token,
        tokens.refresh_token,
        now,
        now + tokens.seconds * _FRESH_SHARE,
        now + tokens.seconds,
    )


def new_file(kubeconfig: Path, context: str) -> Path:
    """Where a new sign-in of a context is kept: beside its kubeconfig, and never in the place of another.

    So whoever is killed while signing in to another server leaves the earlier sign-in with the earlier server.
    """
    return kubeconfig.absolute().with_name(f"{_prefix(kubeconfig, context)}{suffix()}{_ENDING}")


def kept_sign_ins(kubeconfig: Path, context: str) -> list[Path]:
    """The files of all sign-ins of a context: one, unless somebody was killed on the way."""
    prefix, folder = _prefix(kubeconfig, context), kubeconfig.absolute().parent
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.startswith(prefix) and path.suffix == _ENDING)


def _prefix(kubeconfig: Path, context: str) -> str:
    return f"{kubeconfig.name}.{quote(context, safe='')}@"


def keep(path: Path, sign_in: SignIn) -> None:
    """Write it, for its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, json.dumps(asdict(sign_in), indent=2) + "\n")


def read_sign_in(path: Path) -> SignIn:
    """What is kept; raises Unauthenticated if there is nothing."""
    try:
        return SignIn(**json.loads(path.read_text()))
    except FileNotFoundError:
        raise Unauthenticated("you are signed out; sign in with `isthmus login --oidc ISSUER`") from None
    except (OSError, ValueError, TypeError) as error:
        raise Misconfigured(f"{path} cannot be read ({type(error).__name__}); sign in again") from None


def current(access: Access) -> Access:
    """The access with a token that is good now, renewed if it must be."""
    if access.sign_in is None:
        return access
    return access._replace(token=renewed(access.sign_in).id_token)


def renewed(path: Path, now: float | None = None) -> SignIn:
    """What is kept, fresh; raises Unauthenticated, Unavailable."""
    now = time.time() if now is None else now
    kept = read_sign_in(path)
    if kept.is_fresh(now):
        return kept
    with _alone(path):
        kept = read_sign_in(path)  # another process may have been faster
        return kept if kept.is_fresh(now) else _renew(path, kept, now)


def _renew(path: Path, kept: SignIn, now: float) -> SignIn:
    if kept.refresh_token is None:
        return _old(kept, now, Unauthenticated(_again(kept, "the provider gave nothing to renew it with")))
    form = {"grant_type": "refresh_token", "refresh_token": kept.refresh_token, "client_id": kept.client_id}
    try:
        answer = ask(kept.token_address, kept.authorities, form)
    except Unavailable as error:
        return _old(kept, now, error)
    if answer.status != 200:
        if answer.document.get("error") == "invalid_grant":
            kept = replace(kept, refresh_token=None)
            keep(path, kept)
        return _old(kept, now, Unauthenticated(_again(kept, "the provider does not renew it")))
    try:
        tokens = read_tokens(kept.issuer, answer.document)
    except Unauthenticated as error:
        return _old(kept, now, Unauthenticated(_again(kept, error.message)))
    if tokens.subject != kept.subject:
        raise Unauthenticated(_again(kept, "the provider answered with the token of somebody else"))
    offer = ProviderOffer(kept.issuer, kept.client_id, (), kept.authorities)
    addresses = ProviderAddresses("", kept.token_address, kept.revocation_address, "")
    found = new_sign_in(offer, addresses, tokens, now)
    found = replace(found, refresh_token=tokens.refresh_token or kept.refresh_token)
    keep(path, found)
    return found


def _old(kept: SignIn, now: float, error: Exception) -> SignIn:
    """The token as it is, to its end."""
    if kept.received - _CLOCK_SECONDS <= now < kept.ends:
        return kept
    raise error


def _again(kept: SignIn, why: str) -> str:
    return f"your sign-in at {kept.issuer} has ended: {why}; sign in again with `isthmus login --oidc {kept.issuer}`"


def forget(path: Path) -> str | None:
    """Revoke the refresh token and remove the file; answers with what could not be revoked, and why."""
    with _alone(path):
        try:
            kept = read_sign_in(path)
        except (Unauthenticated, Misconfigured):
            path.unlink(missing_ok=True)
            return None
        problem = revoke(kept)
        path.unlink(missing_ok=True)
        return problem


def revoke(kept: SignIn) -> str | None:
    """Make a refresh token useless (RFC 7009); answers with why that cannot be."""
    if kept.refresh_token is None:
        return None
    if kept.revocation_address is None:
        return f"{kept.issuer} revokes no tokens; it forgets the sign-in when its time is over"
    form = {"token": kept.refresh_token, "token_type_hint": "refresh_token", "client_id": kept.client_id}
    try:
        answer = ask(kept.revocation_address, kept.authorities, form)
    except (Unavailable, Misconfigured) as error:
        return f"the sign-in was not revoked at {kept.issuer}: {error.message}"
    return None if answer.status == 200 else f"the sign-in was not revoked at {kept.issuer}: status {answer.status}"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time changes what is in the folder."""
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
