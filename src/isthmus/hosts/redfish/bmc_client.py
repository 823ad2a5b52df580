"""Questions to one BMC: HTTPS only, its certificate checked, every answer with a limit, no redirect followed."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
from cryptography import x509

from isthmus.errors import HostRefused, HostUnavailable, Misconfigured

from . import parsing

SECONDS = 20.0
MOST_BYTES = 1 << 20
_LONGEST_LINE = 1024


def credentials(file: Path) -> tuple[str, str]:
    """USER:PASSWORD from a file that others cannot read; raises Misconfigured."""
    try:
        if file.stat().st_mode & 0o077:
            raise Misconfigured(f"{file} can be read by others; run: chmod 600 {file}")
        with file.open() as lines:
            line = lines.readline(_LONGEST_LINE).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise Misconfigured(f"the credentials in {file} cannot be read: {reason}") from None
    user, colon, password = line.partition(":")
    if not (user and colon and password):
        raise Misconfigured(f"the first line of {file} must be USER:PASSWORD")
    return user, password


def trust(certificate: str | None) -> ssl.SSLContext:
    """What the BMC must show. Its own certificate is enough by itself, whatever name is in it; raises Misconfigured."""
    context = ssl.create_default_context()
    if certificate is None:
        return context
    try:
        known = x509.load_pem_x509_certificates(certificate.encode())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=certificate)
    except (ssl.SSLError, ValueError) as error:
        raise Misconfigured(f"spec.redfish.certificate cannot be read: {error}") from None
    if not any(map(_authority, known)):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False  # exactly this certificate, or none
    return context


def _authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


class RedfishClient:
    """Asks one BMC."""

    def __init__(self, url: str, login: tuple[str, str], tls: ssl.SSLContext) -> None:
        self._http = httpx.AsyncClient(
            base_url=url, auth=login, verify=tls, timeout=SECONDS, follow_redirects=False, trust_env=False
        )

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.aclose()

    async def get(self, path: str) -> dict[str, object]:
        """A document."""
        return parsing.document(await self._ask("GET", path))

    async def post(self, path: str, content: dict[str, str]) -> None:
        """An action."""
        await self._ask("POST", path, content)

    async def _ask(self, method: str, path: str, content: dict[str, str] | None = None) -> bytes:
        try:
            async with self._http.stream(method, path, json=content) as answer:
                body = b""
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise HostRefused(f"The BMC answered {path} with more than {MOST_BYTES >> 20} MiB.")
        except httpx.TimeoutException:
            raise HostUnavailable(f"The BMC did not answer within {SECONDS:g} s.") from None
        except httpx.ConnectError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise HostRefused(
                    "The BMC shows a certificate that is not trusted. If it was changed on purpose, "
                    "set spec.redfish.certificate to the new one."
                ) from None
            raise HostUnavailable(f"The BMC cannot be reached: {error}") from None
        except httpx.HTTPError as error:
            raise HostUnavailable(f"The connection to the BMC broke: {str(error) or type(error).__name__}") from None
        if answer.status_code in (401, 403):
            raise HostRefused("The BMC refuses the credentials; check spec.redfish.credentialsFile.")
        if answer.status_code >= 500 or answer.status_code == 429:
            raise HostUnavailable(f"The BMC has a fault of its own ({answer.status_code}).{_said(body)}")
        if not 200 <= answer.status_code < 300:
            raise HostRefused(f"The BMC refused {method} {path} ({answer.status_code}).{_said(body)}")
        return body


def _said(body: bytes) -> str:
    said = parsing.complaint(body)
    return f" It says: {said}" if said else ""
