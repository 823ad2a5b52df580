"""Up and down, and what is in it. `up` is idempotent: it starts what does not run and leaves the rest alone."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import socket
import ssl
from pathlib import Path

import httpx

from isthmus.errors import Misconfigured
from isthmus.lab import processes
from isthmus.lab.certificates import Authority
from isthmus.lab.layout import LabStatus

from .layout import IMAGE, USER, RegistryLabPlace
from .seeding import make_image, push

PROGRAM = "docker-registry"
_SECONDS = 30.0


class RegistryLab:
    """A registry in a folder."""

    def __init__(self, folder: Path) -> None:
        self.place = RegistryLabPlace(folder.absolute())

    @property
    def image(self) -> str:
        """The image that is there from the beginning, by its whole name."""
        return f"{self.place.host}/{IMAGE}"

    def up(self) -> None:
        """Set it up if it is new, and start it if it does not run."""
        if shutil.which(PROGRAM, path=processes.PATH) is None:
            raise Misconfigured(f"The lab's registry is Debian's {PROGRAM}. Install it with: apt install {PROGRAM}")
        place = self.place
        if not place.exists:
            self._set_up()
        if processes.pid_of(place, PROGRAM) is None:
            processes.spawn(place, PROGRAM, [PROGRAM, "serve", str(place.root / "config.yml")])
        with self.client() as client:
            self._wait(client)
            if client.get(f"{IMAGE.partition(':')[0]}/manifests/1").status_code == 404:
                name, tag = IMAGE.split(":")
                push(client, name, tag, *make_image(place.root))

    def client(self) -> httpx.Client:
        """Calls it, with its account."""
        trust = ssl.create_default_context(cafile=str(self.place.authority))
        account = (USER, self.place.password.read_text().strip())
        return httpx.Client(base_url=f"https://{self.place.host}/v2/", verify=trust, auth=account, trust_env=False)

    def _wait(self, client: httpx.Client) -> None:
        def answers() -> bool:
            try:
                return client.get("").status_code == 200
            except httpx.TransportError:
                return False

        if not processes.wait(answers, _SECONDS):
            said = self.place.log(PROGRAM).read_text(errors="replace").strip().splitlines()[-1:]
            raise Misconfigured(f"The registry does not answer at {self.place.host}: {' '.join(said)[:300]}")

    def _set_up(self) -> None:
        place = self.place
        place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        certificate, key = Authority(place.keys).issue("registry", "registry", hosts=("localhost", "127.0.0.1"))
        password = secrets.token_urlsafe(24)
        _write(place.password, password + "\n")
        _write(place.root / "accounts", f"{USER}:{_bcrypt(password)}\n")
        _write(
            place.root / "config.yml",
            "version: 0.1\nlog: {level: warn, accesslog: {disabled: true}}\n"
            f"storage: {{filesystem: {{rootdirectory: {place.root}/data}}, delete: {{enabled: true}}}}\n"
            f"auth: {{htpasswd: {{realm: lab, path: {place.root}/accounts}}}}\n"
            f"http: {{addr: '127.0.0.1:{port}', secret: {secrets.token_hex(16)}, "
            f"tls: {{certificate: {certificate}, key: {key}}}}}\n",
        )
        _write(place.root / "port", f"{port}\n")

    def down(self, *, erase: bool = False) -> None:
        """Stop it; with `erase` no file is left either."""
        if self.place.root.exists():
            processes.stop(self.place, PROGRAM)
        if erase:
            shutil.rmtree(self.place.root, ignore_errors=True)

    def status(self) -> LabStatus:
        """What runs."""
        pid = processes.pid_of(self.place, PROGRAM)
        return LabStatus(self.place.root, pid is not None, {PROGRAM: pid} if pid else {}, {})


def _write(path: Path, content: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)
    new.write_text(content)
    new.replace(path)


def _bcrypt(password: str) -> str:
    """The one form of a password that the registry takes; made by the system's own crypt(3)."""
    alphabet = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    salt = "".join(alphabet[byte & 63] for byte in os.urandom(21)) + "."
    try:
        crypt = ctypes.CDLL("libcrypt.so.1").crypt
    except OSError:
        raise Misconfigured("The lab's registry needs libcrypt.so.1. Install it with: apt install libcrypt1") from None
    crypt.restype, crypt.argtypes = ctypes.c_char_p, (ctypes.c_char_p, ctypes.c_char_p)
    made: bytes | None = crypt(password.encode(), f"$2y$05${salt}".encode())
    if made is None or not made.startswith(b"$2y$"):
        raise Misconfigured("crypt(3) of this system makes no bcrypt passwords, which the registry needs.")
    return made.decode()
