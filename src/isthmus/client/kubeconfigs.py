"""kubeconfig files: the form in which `isthmus login` keeps an address and a token, and which kubectl reads too.

They are written as JSON, which is YAML, because reading it back costs a tenth of the time. kubectl keeps a token to
itself when the server speaks plain HTTP, but sends what stands in the address: there the token is in both places.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.errors import Misconfigured

CREDENTIAL = "credential"
"""The command that kubectl calls for a token."""
EXEC_API = "client.authentication.k8s.io/v1"


class Access(NamedTuple):
    """Where a server is and what opens it."""

    url: str
    token: str | None = None
    namespace: str | None = None
    ca: bytes | None = None
    """Certificates, in PEM, to trust beside those of the system."""
    sign_in: Path | None = None
    """In place of a token: the file of a sign-in at a provider (`oidc/sign_ins.py`), read anew for each request."""


def read_access(path: Path, context: str | None = None) -> Access | None:
    """The access that a context (none: the current one) gives; None if the file or the context is not there."""
    config = _read(path)
    found = _entry(config, "contexts", context or str(config.get("current-context") or ""))
    if found is None:
        return None
    cluster = _entry(config, "clusters", str(found.get("cluster"))) or {}
    user = _entry(config, "users", str(found.get("user"))) or {}
    if not cluster.get("server"):
        return None
    if cluster.get("insecure-skip-tls-verify"):
        raise Misconfigured(f"{path} says not to verify certificates; name the certificate-authority there instead")
    url, inside = without_secret(str(cluster["server"]))
    kept = _sign_in(user)
    token = None if kept else _token(user, path) or inside
    return Access(url, token, found.get("namespace"), _ca(cluster, path), kept)


def without_secret(url: str) -> tuple[str, str | None]:
    """An address as it may be shown, and the token that stood in it."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    userinfo, _, bare = host.rpartition("@")
    if not separator or not userinfo:
        return url, None
    from urllib.parse import unquote

    return f"{scheme}://{bare}{slash}{path}", unquote(userinfo.partition(":")[2]) or None


def _with_secret(url: str, token: str | None) -> str:
    if not token or not url.startswith("http://"):
        return url
    from urllib.parse import quote

    return f"http://isthmus:{quote(token, safe='')}@{url.removeprefix('http://')}"


def current_context(path: Path) -> str | None:
    """The name of the current context, if there is one."""
    return _read(path).get("current-context") or None


def write_access(path: Path, access: Access, context: str) -> None:
    """Add a context, or replace it, make it the current one, and keep what else is in the file. Mode 0600."""
    config = _read(path)
    cluster: dict[str, Any] = {"server": _with_secret(access.url, access.token)}
    if access.ca:
        import base64

        cluster["certificate-authority-data"] = base64.b64encode(access.ca).decode()
    names = {"cluster": context, "user": context}
    _put(config, "clusters", context, cluster)
    _put(config, "users", context, _plug_in(access.sign_in) if access.sign_in else {"token": access.token or ""})
    _put(config, "contexts", context, {**names, **({"namespace": access.namespace} if access.namespace else {})})
    config.update({"apiVersion": "v1", "kind": "Config", "current-context": context})
    _write(path, config)


def remove_access(path: Path, context: str) -> bool:
    """Take a context out, with its token, and keep what else is in the file; answers whether it was there."""
    config = _read(path)
    if _entry(config, "contexts", context) is None:
        return False
    for section in ("contexts", "users", "clusters"):
        config[section] = [item for item in config.get(section) or () if item.get("name") != context]
    if config.get("current-context") == context:
        config["current-context"] = ""
    _write(path, config)
    return True


def _write(path: Path, config: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    # Created closed to others: a token must not be readable even for a moment.
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(config, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{path} cannot be read ({error}); correct it or log in again") from None
    if not text.strip():
        return {}
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else _yaml(text)
    except ValueError as error:
        raise Misconfigured(f"{path} is not a kubeconfig ({error}); correct it or log in again") from None
    if not isinstance(found, dict):
        raise Misconfigured(f"{path} is not a kubeconfig; correct it or log in again")
    return found


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _entry(config: Mapping[str, Any], section: str, name: str) -> dict[str, Any] | None:
    for item in config.get(section) or ():
        if isinstance(item, dict) and item.get("name") == name:
            return dict(item.get(section.removesuffix("s")) or {})
    return None


def _put(config: dict[str, Any], section: str, name: str, value: Mapping[str, Any]) -> None:
    others = [item for item in config.get(section) or () if isinstance(item, dict) and item.get("name") != name]
    config[section] = [*others, {"name": name, section.removesuffix("s"): dict(value)}]


def _plug_in(sign_in: Path) -> dict[str, Any]:
    """How kubectl gets a token of a sign-in: by asking this program."""
    import sys

    words = ["-m", "isthmus.cli", CREDENTIAL, str(sign_in)]
    return {"exec": {"apiVersion": EXEC_API, "command": sys.executable, "args": words, "interactiveMode": "Never"}}


def _sign_in(user: Mapping[str, Any]) -> Path | None:
    """The file that our plug-in is asked about; whatever else a user runs is not run here."""
    found = user.get("exec")
    words = found.get("args") if isinstance(found, dict) else None
    ours = isinstance(words, list) and len(words) >= 2 and words[-2] == CREDENTIAL
    return Path(str(words[-1])) if words and ours else None


def _token(user: Mapping[str, Any], path: Path) -> str | None:
    if user.get("token"):
        return str(user["token"])
    if file := user.get("tokenFile"):
        try:
            return (path.parent / str(file)).read_text().strip()
        except OSError as error:
            raise Misconfigured(f"{path} names a token file that cannot be read ({error}); log in again") from None
    return None


def _ca(cluster: Mapping[str, Any], path: Path) -> bytes | None:
    if data := cluster.get("certificate-authority-data"):
        import base64

        return base64.b64decode(str(data))
    if file := cluster.get("certificate-authority"):
        try:
            return (path.parent / str(file)).read_bytes()
        except OSError as error:
            raise Misconfigured(f"{path} names certificates that cannot be read ({error}); log in again") from None
    return None
