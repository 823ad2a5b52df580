"""Settings of one control plane."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from isthmus._kit.ids import suffix

DEFAULT_PORT = 7070


def default_data_folder(environment: dict[str, str]) -> Path:
    """Where an instance lives unless an option says otherwise: `ISTHMUS_DATA`, else below the user's own data folder.

    For root it is /var/lib/isthmus: root's home is closed to everybody else, and jobs run as somebody else.
    """
    if named := environment.get("ISTHMUS_DATA"):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/lib/isthmus")
    base = environment.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    return Path(base) / "isthmus"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One control plane."""

    data: Path
    """Folder of everything this instance keeps. No default here: two instances must never share one by accident."""
    host: str = "127.0.0.1"
    """Address to listen on. Loopback, because anything else wants TLS."""
    port: int = DEFAULT_PORT
    """Port to listen on; 0 takes any free one."""
    store: str | None = None
    """`postgresql://…` or `kubernetes:…`; none means SQLite in the data folder."""
    shared_files: Path | None = None
    """Folder of uploaded files and outputs that several control planes share. None: in the data folder."""
    tls_certificate: Path | None = None
    """PEM file with the certificate chain. None: the instance makes an authority and a certificate of its own."""
    tls_key: Path | None = None
    """PEM file with the key of the certificate."""
    insecure: bool = False
    """Permit plain HTTP on an address that others can reach (behind a proxy that does TLS)."""
    identity: str = field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}-{suffix()}")
    """What this control plane is called among several. Two containers may well agree on name and number: with the same
    identity both would lead."""
    workers: int = 64
    """Jobs handled at the same time. Nearly all of the time is waiting for the store, for files or for an engine, and
    engines have limits of their own."""
    audit_forward: str = ""
    """Where entries of the audit log go beside the log: `syslog`, `syslog://HOST:PORT`, `syslog+tcp://HOST:PORT` or the
    path of a file. Nothing: nowhere else."""
    log_level: str = "INFO"
    """How much is logged: DEBUG, INFO, WARNING, ERROR."""

    @property
    def in_cluster(self) -> bool:
        """Whether a Kubernetes cluster is the store: others than our API write there."""
        return (self.store or "").startswith("kubernetes:")

    @property
    def in_pod(self) -> bool:
        """Whether we run inside that cluster."""
        return (self.store or "").startswith("kubernetes:https://")

    @property
    def database(self) -> Path:
        """The embedded store's file."""
        return self.data / "isthmus.db"

    @property
    def series(self) -> Path:
        """The database of what was measured of jobs. It can be removed: it is read again from the sites."""
        return self.data / "series.db"

    @property
    def files(self) -> Path:
        """Where uploaded files and outputs lie."""
        return self.shared_files or self.data / "files"

    @property
    def sites(self) -> Path:
        """Where local sites keep their runs."""
        return self.data / "sites"

    @property
    def audit_name(self) -> Path:
        """Holds the name of this control plane's audit log, which lies with the files: `audit/NAME`."""
        return self.data / "audit.name"

    @property
    def admin_token(self) -> Path:
        """The first administrator's token, readable by the owner only."""
        return self.data / "admin.token"

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and `isthmus` itself."""
        return self.data / "kubeconfig"

    @property
    def instance(self) -> Path:
        """Where and as which process the running instance is found."""
        return self.data / "instance.json"
