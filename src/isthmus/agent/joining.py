"""Joining: an invitation is exchanged for the right of a key that is made here.

The invitation names the site and proves that an administrator wants it; the fingerprint beside it says which
authority vouches for the control plane, so that nobody in between can take the invitation. If the answer is lost
the same command is given again: the key is kept before it is sent, and a control plane that knows it already says
so.
"""

from __future__ import annotations

import hashlib
import json
import ssl
from urllib.parse import urlsplit

from isthmus._kit.http import HttpClient, NoAnswer
from isthmus._kit.private_files import write_private
from isthmus.engines.agent.messages import text
from isthmus.engines.agent.proving import INVITATION, Proof, new_key, public_of, sign
from isthmus.errors import Forbidden, Misconfigured, Unreachable

from .connecting import pinned
from .places import AgentPlace, Membership

PATH = "/agents/enrol"
AUTHORITY_PATH = "/.well-known/isthmus/ca.pem"
_SECONDS = 20.0


def split_invitation(invitation: str) -> tuple[str, str]:
    """The site and the secret; raises Misconfigured."""
    site, underscore, secret = invitation.removeprefix(INVITATION).partition("_")
    if not invitation.startswith(INVITATION) or not site or not underscore or not secret:
        raise Misconfigured(f"that is not an invitation: one looks like {INVITATION}NAME_SECRET; was it cut off?")
    return site, secret


async def join(place: AgentPlace, url: str, invitation: str, fingerprint: str) -> Membership:
    """Make a key, have it accepted, and keep both; raises Misconfigured, Unreachable, Forbidden."""
    site, secret = split_invitation(invitation)
    if urlsplit(url).scheme != "https":
        raise Misconfigured(f"{url} does not begin with https://; agents speak to nobody without TLS")
    authority = await _authority(url, fingerprint)
    place.make()
    pending = place.data / "joining.key"  # the same key again, if the answer to the first attempt was lost
    if not pending.exists():
        write_private(pending, new_key()[0])
    key, machine = pending.read_text(), place.machine(new=True)
    proof = Proof(site, machine, "join", hashlib.sha256(secret.encode()).hexdigest())
    body = {"invitation": invitation, "key": public_of(key), "machine": machine, "signature": sign(key, proof)}
    await _enrol(url, authority, body)
    membership = Membership(url.rstrip("/"), site, authority)
    place.keep(membership, key)
    pending.unlink()
    return membership


async def _authority(url: str, fingerprint: str) -> str:
    """The authority that vouches for the control plane, by its fingerprint: who sends it need not be trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    status, body = await _ask(url, context, "GET", AUTHORITY_PATH)
    if status != 200 or fingerprint_of(body) != fingerprint.removeprefix("sha256:").lower():
        raise Misconfigured(f"{url} is not the control plane of this invitation: its authority is another")
    return body.decode()


async def _enrol(url: str, authority: str, body: dict[str, str]) -> None:
    status, answer = await _ask(url, pinned(authority), "POST", PATH, json.dumps(body).encode())
    if status == 200:
        return
    try:
        said = json.loads(answer)
        message = text(said.get("message"), 1000) if isinstance(said, dict) else ""
    except ValueError:
        message = ""
    raise Forbidden(message or f"the control plane answered {status}")


async def _ask(url: str, tls: ssl.SSLContext, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    client = HttpClient(url.rstrip("/"), connections=1, seconds=_SECONDS, tls=tls)
    try:
        answer = await client.ask(method, path, {"Content-Type": "application/json"} if body else {}, body)
        return answer.status, answer.body
    except NoAnswer as error:
        raise Unreachable(f"{url} cannot be reached: {error}") from None
    finally:
        await client.close()


def fingerprint_of(authority: bytes) -> str:
    """What an authority is known by in an invitation."""
    return hashlib.sha256(authority.strip()).hexdigest()
