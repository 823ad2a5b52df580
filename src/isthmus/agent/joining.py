"""Joining: an invitation is exchanged for the right of a key that is made here.

The invitation names the site and proves that an administrator wants it; the fingerprint beside it says which
authority vouches for the control plane, so that nobody in between can take the invitation. If the answer is lost
the same command is given again: the key is kept before it is sent, and a control plane that knows it already says
so.

Where an HTTP proxy stands in between, everything goes through it (CONNECT), and the agent keeps its address.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import json
import ssl
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from isthmus._kit.private_files import write_private
from isthmus.engines.agent.messages import text
from isthmus.engines.agent.proving import INVITATION, Proof, new_key, public_of, sign
from isthmus.errors import Forbidden, Misconfigured, Unreachable

from .connecting import pinned
from .places import AgentPlace, Membership

PATH = "/agents/enrol"
AUTHORITY_PATH = "/.well-known/isthmus/ca.pem"
_SECONDS = 20.0
_LARGEST = 2**20


def split_invitation(invitation: str) -> tuple[str, str]:
    """The site and the secret; raises Misconfigured."""
    site, underscore, secret = invitation.removeprefix(INVITATION).partition("_")
    if not invitation.startswith(INVITATION) or not site or not underscore or not secret:
        raise Misconfigured(f"that is not an invitation: one looks like {INVITATION}NAME_SECRET; was it cut off?")
    return site, secret


def proxy_for(url: str) -> str:
    """The HTTP proxy that the environment names for an address; empty: none."""
    where = urlsplit(url)
    host = where.hostname or ""
    if proxy_bypass(where.netloc.rpartition("@")[2]) or proxy_bypass(host):
        return ""
    known = getproxies()
    return known.get("https") or known.get("all") or ""


async def join(place: AgentPlace, url: str, invitation: str, fingerprint: str, proxy: str = "") -> Membership:
    """Make a key, have it accepted, and keep both; raises Misconfigured, Unreachable, Forbidden."""
    check_proxy(proxy)
    site, secret = split_invitation(invitation)
    if urlsplit(url).scheme != "https":
        raise Misconfigured(f"{url} does not begin with https://; agents speak to nobody without TLS")
    authority = await fetch_authority(url, fingerprint, proxy)
    place.make()
    pending = place.data / "joining.key"  # the same key again, if the answer to the first attempt was lost
    if not pending.exists():
        write_private(pending, new_key()[0])
    key, machine = pending.read_text(), place.machine(new=True)
    proof = Proof(site, machine, "join", hashlib.sha256(secret.encode()).hexdigest())
    body = {"invitation": invitation, "key": public_of(key), "machine": machine, "signature": sign(key, proof)}
    await _enrol(url, authority, body, proxy)
    membership = Membership(url.rstrip("/"), site, authority, proxy)
    place.keep(membership, key)
    pending.unlink()
    return membership


async def fetch_authority(url: str, fingerprint: str, proxy: str) -> str:
    """The authority that vouches for the control plane, by its fingerprint: who sends it need not be trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    status, body = await _ask(url, context, proxy, "GET", AUTHORITY_PATH)
    if status != 200 or fingerprint_of(body) != fingerprint.removeprefix("sha256:").lower():
        raise Misconfigured(f"{url} is not the control plane of this invitation: its authority is another")
    return body.decode()


async def _enrol(url: str, authority: str, body: dict[str, str], proxy: str) -> None:
    status, answer = await _ask(url, pinned(authority), proxy, "POST", PATH, json.dumps(body).encode())
    if status == 200:
        return
    try:
        said = json.loads(answer)
        message = text(said.get("message"), 1000) if isinstance(said, dict) else ""
    except ValueError:
        message = ""
    raise Forbidden(message or f"the control plane answered {status}")


async def _ask(
    url: str, tls: ssl.SSLContext, proxy: str, method: str, path: str, body: bytes = b""
) -> tuple[int, bytes]:
    try:
        return await asyncio.to_thread(_exchange, urlsplit(url), tls, proxy, method, path, body)
    except (OSError, http.client.HTTPException) as error:
        way = f" through the proxy {_shown(proxy)}" if proxy else ""
        raise Unreachable(f"{url} cannot be reached{way}: {str(error) or type(error).__name__}") from None


def _exchange(
    where: SplitResult, tls: ssl.SSLContext, proxy: str, method: str, path: str, body: bytes
) -> tuple[int, bytes]:
    host, port = where.hostname or "", where.port or 443
    by = urlsplit(proxy)
    connection = http.client.HTTPSConnection(by.hostname or host, by.port or port, timeout=_SECONDS, context=tls)
    try:
        if proxy:
            connection.set_tunnel(host, port, _account(by))
        connection.request(method, path, body or None, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read(_LARGEST)
    finally:
        connection.close()


def check_proxy(proxy: str) -> None:
    """Raises Misconfigured for what is no address of a proxy."""
    try:
        by = urlsplit(proxy)
        good = not proxy or (by.scheme == "http" and bool(by.hostname) and bool(by.port))
    except ValueError:
        good = False
    if not good:
        raise Misconfigured(
            f"{_shown(proxy)} is not the address of an HTTP proxy, such as http://proxy.example.org:3128"
        )


def _shown(proxy: str) -> str:
    """Without the password."""
    return proxy.rpartition("@")[2]


def _account(by: SplitResult) -> dict[str, str]:
    if by.username is None:
        return {}
    said = f"{unquote(by.username)}:{unquote(by.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(said.encode()).decode()}"}


def fingerprint_of(authority: bytes) -> str:
    """What an authority is known by in an invitation."""
    return hashlib.sha256(authority.strip()).hexdigest()
