"""Where a cluster is, whom we trust there and who we are: from a kubeconfig, or as a pod from its service account.

Certificates and keys may be files or base64 in the kubeconfig. A server that cannot be verified is refused: whoever
answers in its place would be shown our token.
"""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from isthmus.errors import Misconfigured

from .credentials import Bearer, TokenFile, credentials_of

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IN_CLUSTER = "https://kubernetes.default.svc"
"""The name that an API server has for the pods of its cluster."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """A cluster's address, whom we trust there, and who we are."""

    url: str
    context: ssl.SSLContext
    auth: Bearer | None = None
    namespace: str = "default"

    async def headers(self) -> dict[str, str]:
        """Who we are, for connections that httpx does not make."""
        return await self.auth.headers() if self.auth is not None else {}


def at(location: str) -> ClusterAccess:
    """The cluster at a store's location: `kubernetes:PATH[#CONTEXT]` of a kubeconfig; in a pod `kubernetes:https://…`."""
    where = location.partition(":")[2]
    if where.startswith("https://"):
        return own(where)
    path, _, context = where.partition("#")
    if not path:
        raise Misconfigured("which cluster? write --store kubernetes:PATH with the path of a kubeconfig")
    return load(Path(path).expanduser(), context or None)


def in_cluster(environment: Mapping[str, str]) -> str | None:
    """Where the API server is for a pod of its cluster, by the variables that every pod gets; None if we are none."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}" if host and port else None


def own(server: str = IN_CLUSTER, folder: Path = SERVICE_ACCOUNT) -> ClusterAccess:
    """The cluster that we run in as a pod."""
    try:
        context = ssl.create_default_context(cafile=folder / "ca.crt")
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise Misconfigured(
            f"this does not run in Kubernetes: there is no service account in {folder} ({error.strerror}); "
            "name a kubeconfig"
        ) from None
    return ClusterAccess(server, context, TokenFile(folder / "token"), namespace)


def load(path: Path, name: str | None = None) -> ClusterAccess:
    """The cluster and user of a context, the current one unless named; raises Misconfigured with what is wrong."""
    try:
        config = yaml.safe_load(path.read_text())
    except OSError as error:
        raise Misconfigured(f"the kubeconfig {path} cannot be read ({error.strerror}); name another") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the kubeconfig {path} is not YAML: {error}") from None
    if not isinstance(config, dict):
        raise Misconfigured(f"{path} is not a kubeconfig; `kubectl config view` shows a whole one")
    context = _named(config, "context", name or config.get("current-context"), path)
    cluster = _named(config, "cluster", context.get("cluster"), path)
    user = _named(config, "user", context["user"], path) if context.get("user") else {}
    url = cluster.get("server")
    if not isinstance(url, str) or not url.startswith("https://"):
        raise Misconfigured(f"the cluster of {path} needs a server that begins with https://")
    if cluster.get("insecure-skip-tls-verify"):
        raise Misconfigured(f"{path} wants an unverified server; give it certificate-authority-data instead")
    made = _context(cluster, user, path)
    return ClusterAccess(
        url.rstrip("/"), made, credentials_of(user, path.parent), context.get("namespace") or "default"
    )


def _named(config: Mapping[str, Any], singular: str, name: Any, path: Path) -> dict[str, Any]:
    entries = config.get(f"{singular}s")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(singular)
            return found if isinstance(found, dict) else {}
    raise Misconfigured(f"{path} has no {singular} named {name!r}; see `kubectl config view`")


def _context(cluster: Mapping[str, Any], user: Mapping[str, Any], path: Path) -> ssl.SSLContext:
    with ExitStack() as files:
        try:
            context = ssl.create_default_context(cafile=_file(cluster, "certificate-authority", path.parent, files))
            if (certificate := _file(user, "client-certificate", path.parent, files)) is not None:
                context.load_cert_chain(certificate, _file(user, "client-key", path.parent, files))
        except (OSError, binascii.Error) as error:  # ssl.SSLError is an OSError
            raise Misconfigured(f"a certificate in {path} cannot be used: {error}") from None
    return context


def _file(section: Mapping[str, Any], name: str, folder: Path, files: ExitStack) -> str | None:
    """The path of what is given as a file or as data. Data lies in a file of ours only while it is being read."""
    if data := section.get(f"{name}-data"):
        holder = files.enter_context(tempfile.NamedTemporaryFile())  # noqa: SIM115 - the stack closes it; mode 600
        holder.write(base64.b64decode(data))
        holder.flush()
        return holder.name
    return str(folder / section[name]) if section.get(name) else None
