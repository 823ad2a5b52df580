"""Who we are for an API server: read from a kubeconfig, or from the service account of our own pod."""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from isthmus.errors import Misconfigured

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is, and what to show it."""

    url: str
    context: ssl.SSLContext
    token: str | None = None
    token_file: Path | None = None

    def headers(self) -> dict[str, str]:
        """Tokens in files are read every time: they are changed by others."""
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def load(path: Path, name: str | None = None) -> Access:
    """From a kubeconfig; raises Misconfigured with what is wrong in it."""
    try:
        config = yaml.safe_load(path.read_text())
    except OSError as error:
        raise Misconfigured(f"the kubeconfig {path} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise Misconfigured(f"the kubeconfig {path} is not YAML: {error}") from None
    if not isinstance(config, dict):
        raise Misconfigured(f"{path} is not a kubeconfig")
    wanted = name or config.get("current-context")
    context = _named(config, "contexts", "context", wanted, path)
    cluster = _named(config, "clusters", "cluster", context.get("cluster"), path)
    user = _named(config, "users", "user", context.get("user"), path)
    if "exec" in user or "auth-provider" in user:
        raise Misconfigured(
            f"the user of {path} signs in by another program, which a server cannot. Use a token or a certificate."
        )
    url = cluster.get("server")
    if not isinstance(url, str) or not url.startswith("https://"):
        raise Misconfigured(f"the cluster of {path} needs a server that begins with https://")
    made = _context(cluster, user, path)
    token_file = user.get("tokenFile")
    return Access(url.rstrip("/"), made, user.get("token"), path.parent / token_file if token_file else None)


def own(folder: Path = SERVICE_ACCOUNT) -> Access:
    """From inside a cluster: the service account that Kubernetes gives our pod, at the name every cluster has."""
    if not (folder / "token").exists():
        raise Misconfigured("the control plane does not run in Kubernetes: give the site a kubeconfig")
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    return Access("https://kubernetes.default.svc", context, token_file=folder / "token")


def _named(config: dict[str, Any], plural: str, singular: str, name: Any, path: Path) -> dict[str, Any]:
    for entry in config.get(plural) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(singular)
            return found if isinstance(found, dict) else {}
    raise Misconfigured(f"{path} has no {singular} named {name!r}")


def _context(cluster: dict[str, Any], user: dict[str, Any], path: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=_text(cluster, "certificate-authority", path))
        if cluster.get("insecure-skip-tls-verify"):
            raise Misconfigured(f"{path} wants an unverified server; give it certificate-authority-data instead")
        certificate, key = (_text(user, name, path) for name in ("client-certificate", "client-key"))
        if certificate and key:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # made for us alone: mode 600
                file.write(f"{certificate}\n{key}\n")
                file.flush()
                context.load_cert_chain(file.name)
    except (ssl.SSLError, binascii.Error, ValueError, OSError) as error:
        raise Misconfigured(f"a certificate in {path} cannot be used: {error}") from None
    return context


def _text(section: dict[str, Any], name: str, path: Path) -> str | None:
    """A PEM text: inline, or in a file."""
    if data := section.get(f"{name}-data"):
        return base64.b64decode(data).decode()
    return (path.parent / section[name]).read_text() if section.get(name) else None
