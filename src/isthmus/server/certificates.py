"""TLS for an instance that was given no certificate: an authority of its own, made at the first start.

kubectl sends no token over plain HTTP, and nobody else should; so every instance can speak TLS from its first
minute. The authority's certificate goes into the kubeconfigs that the instance and `isthmus login` write. The
server's certificate is made again when it is about to expire, or when the address it must vouch for is new.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from isthmus._kit.clock import utcnow
from isthmus._kit.private_files import write_private
from isthmus.errors import Misconfigured

AUTHORITY_YEARS = 20
SERVER_DAYS = 365
RENEW_DAYS = 60


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """What the server shows, and what clients check it against (none: the authorities of their system)."""

    context: ssl.SSLContext
    authority: bytes | None


def given(certificate: Path, key: Path) -> TlsIdentity:
    """The certificate that an administrator has."""
    context = _context()
    try:
        context.load_cert_chain(certificate, key)
        return TlsIdentity(context, certificate.read_bytes())
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"the certificate {certificate} with the key {key} cannot be used: {error}") from None


def own(folder: Path, host: str) -> TlsIdentity:
    """A certificate of the instance's own, for the address it listens on and the usual names of this machine."""
    folder.mkdir(mode=0o700, exist_ok=True)
    ca_file, ca_key_file = folder / "ca.pem", folder / "ca.key"
    certificate_file, key_file = folder / "server.pem", folder / "server.key"
    names = _names(host)
    now = utcnow()
    if not (ca_file.exists() and ca_key_file.exists()):
        _make_authority(ca_file, ca_key_file, now)
        certificate_file.unlink(missing_ok=True)
    if not _still_good(certificate_file, key_file, names, now):
        _make_certificate(ca_file, ca_key_file, certificate_file, key_file, names, now)
    context = _context()
    context.load_cert_chain(certificate_file, key_file)
    return TlsIdentity(context, ca_file.read_bytes())


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _names(host: str) -> list[x509.GeneralName]:
    here = socket.gethostname()
    texts = dict.fromkeys(["127.0.0.1", "::1", "localhost", here])
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        texts.update(dict.fromkeys(_addresses(here)))
    else:
        texts[host] = None
    names: list[x509.GeneralName] = []
    for text in texts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(text)))
        except ValueError:
            names.append(x509.DNSName(text))
    return names


def _addresses(host: str) -> list[str]:
    """The addresses of this machine, as far as its own name and its way out show."""
    found = []
    with contextlib.suppress(OSError):
        found += [str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses the address that packets would leave from
        found.append(str(probe.getsockname()[0]))
    return found


def _make_authority(certificate: Path, key_file: Path, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Isthmus instance authority")])
    made = (
        _builder(name, name, key.public_key(), now, timedelta(days=365 * AUTHORITY_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, _pem(key))
    write_private(certificate, made.public_bytes(serialization.Encoding.PEM).decode())


def _make_certificate(
    ca_file: Path, ca_key_file: Path, certificate: Path, key_file: Path, names: list[x509.GeneralName], now: datetime
) -> None:
    authority = x509.load_pem_x509_certificate(ca_file.read_bytes())
    signer = serialization.load_pem_private_key(ca_key_file.read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Isthmus")])
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = (
        _builder(subject, authority.subject, key.public_key(), now, timedelta(days=SERVER_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(issuer_id, critical=False)
        .sign(signer, hashes.SHA256())
    )
    write_private(key_file, _pem(key))
    write_private(certificate, made.public_bytes(serialization.Encoding.PEM).decode())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lasts: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks are apart
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode()


def _still_good(certificate: Path, key_file: Path, names: list[x509.GeneralName], now: datetime) -> bool:
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        vouched = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False
    return (
        key_file.exists()
        and set(names) <= set(vouched)
        and found.not_valid_after_utc - now > timedelta(days=RENEW_DAYS)
    )
