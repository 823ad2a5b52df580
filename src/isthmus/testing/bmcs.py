"""A real Redfish service for tests: sushy-tools' emulator with machines that exist in its memory only, over TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
import subprocess
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from isthmus._kit.private_files import write_private

from .servers import LoggedProcess, eventually, free_port

USER, PASSWORD = "admin", "tell nobody"


def make_certificate(folder: Path, *, named: str = "localhost") -> str:
    """A certificate that signs itself, as BMCs have them; its PEM. The key lies beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, named)])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName(named), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
    (folder / "certificate.pem").write_text(pem)
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(private)
    return pem


class Bmc(LoggedProcess):
    """The emulator, with some machines that are off."""

    def __init__(self, folder: Path, *machines: str) -> None:
        import bcrypt  # comes with the emulator

        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self.port, self._folder = free_port(), folder
        self.certificate = make_certificate(folder)
        self.credentials = folder / "credentials"
        write_private(self.credentials, f"{USER}:{PASSWORD}\n")
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        (folder / "accounts").write_text(f"{USER}:{hashed}\n")
        systems = [
            {"uuid": f"00000000-0000-0000-0000-{n:012}", "name": name, "power_state": "Off", "nics": []}
            for n, name in enumerate(machines or ("node-1",))
        ]
        settings = {
            "SUSHY_EMULATOR_FAKE_DRIVER": True,
            "SUSHY_EMULATOR_FAKE_SYSTEMS": systems,
            "SUSHY_EMULATOR_STATE_DIR": str(folder),
            "SUSHY_EMULATOR_LISTEN_IP": "127.0.0.1",
            "SUSHY_EMULATOR_LISTEN_PORT": self.port,
            "SUSHY_EMULATOR_SSL_CERT": str(folder / "certificate.pem"),
            "SUSHY_EMULATOR_SSL_KEY": str(folder / "key.pem"),
            "SUSHY_EMULATOR_AUTH_FILE": str(folder / "accounts"),
        }
        (folder / "emulator.conf").write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        program = Path(sys.executable).with_name("sushy-emulator")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [program, "--config", self._folder / "emulator.conf"], stdout=log, stderr=log, cwd=self._folder
            )
        eventually(lambda: b"Running on" in self.log.read_bytes() or None)
