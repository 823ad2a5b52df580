"""An authority for one lab, and certificates for everybody in it: that is how Kubernetes' parts know each other."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from isthmus._kit.clock import utcnow

YEARS = 10


class Authority:
    """Makes certificates below a folder; what is there already is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        if not (folder / "ca.crt").exists():
            key = ec.generate_private_key(ec.SECP256R1())
            name = _name("isthmus-lab", ())
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            made = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            self._keep("ca", key, made.add_extension(usage, critical=True).sign(key, hashes.SHA256()))
        if not (folder / "sa.key").exists():
            signer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
            _write(folder / "sa.key", _pem(signer))
            public = signer.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            _write(folder / "sa.pub", public)

    @property
    def ca(self) -> Path:
        """The authority's certificate."""
        return self.folder / "ca.crt"

    def issue(self, stem: str, name: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> tuple[Path, Path]:
        """A certificate and its key, for a client and (with hosts) for a server."""
        certificate, key_file = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        if certificate.exists() and key_file.exists():
            return certificate, key_file
        ca = x509.load_pem_x509_certificate(self.ca.read_bytes())
        ca_key = serialization.load_pem_private_key((self.folder / "ca.key").read_bytes(), None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        made = _builder(_name(name, groups), ca.subject, key).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if hosts:
            made = made.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        self._keep(stem, key, made.sign(ca_key, hashes.SHA256()))
        return certificate, key_file

    def kubeconfig(self, path: Path, url: str, stem: str, name: str, groups: Sequence[str] = ()) -> None:
        """A file with which somebody may call the API server."""
        certificate, key = self.issue(stem, name, groups)
        _write(path, yaml.safe_dump(_kubeconfig(url, self.ca, certificate, key)).encode())

    def _keep(self, stem: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        _write(self.folder / f"{stem}.key", _pem(key))
        _write(self.folder / f"{stem}.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _kubeconfig(url: str, ca: Path, certificate: Path, key: Path) -> dict[str, object]:
    def inline(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": url, "certificate-authority-data": inline(ca)}}],
        "users": [
            {"name": "lab", "user": {"client-certificate-data": inline(certificate), "client-key-data": inline(key)}}
        ],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    }


def _name(name: str, groups: Sequence[str]) -> x509.Name:
    words = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*words, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = utcnow()
    made = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=365 * YEARS))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.replace(path)
