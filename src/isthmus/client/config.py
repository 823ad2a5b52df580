"""Where the server is: said outright, else in the environment, else by `isthmus login`, else on this machine.

1. the arguments `url`, `token`, `namespace`;
2. `ISTHMUS_URL`, `ISTHMUS_TOKEN`, `ISTHMUS_NAMESPACE` (`ISTHMUS_TOKEN_FILE` names a file with the token);
3. `$XDG_CONFIG_HOME/isthmus/kubeconfig`, which `isthmus login` writes;
4. `KUBECONFIG`, if its current context is one of ours: another cluster's token is never sent anywhere;
5. the instance that `isthmus up` keeps in its usual folder (`config/server.py`), if it is the same user's.

A token found in one place is only ever sent to the address found in the same place, unless an argument or the
environment says otherwise. The tenant kept with one token is not assumed for another: the server is asked whose it is.

On this machine too it is verified who answers: whoever else listens on the port of a server that is down would collect
tokens. So where one of these places knows the certificates of a server on loopback, plain HTTP to its port becomes TLS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from isthmus.errors import Misconfigured, Unauthenticated

from .kubeconfigs import Access, current_context, read_access, without_secret

CONTEXT_PREFIX = "isthmus"
_PREFIX = "ist_"
_NOWHERE = (
    "there is no server to talk to: start one here with `isthmus up`, log in to one with "
    "`isthmus login --url URL`, or set ISTHMUS_URL and ISTHMUS_TOKEN"
)


def find_access(
    url: str | None = None,
    token: str | None = None,
    namespace: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Access:
    """The server meant; raises Misconfigured that says how to name one."""
    env = os.environ if environment is None else environment
    namespace = namespace or env.get("ISTHMUS_NAMESPACE") or None
    token = check_token(token or env.get("ISTHMUS_TOKEN") or _token_file(env))
    url, inside = without_secret(url or env.get("ISTHMUS_URL") or "")
    token = token or inside
    if not url:
        if (kept := kept_access(env)) is None:
            raise Misconfigured(_NOWHERE)
        return _with(kept, token, namespace)
    # An instance that made its own certificate is trusted by what was kept of it.
    known = kept_of(url, env) if not token or url.startswith("https:") or is_loopback(url) else []
    if known:
        # Of several the first has the token; the last, of this machine, the certificates: it writes them at each start.
        return _with(known[-1] if token else known[0], token, namespace)
    return Access(url, token, namespace, _ca_file(env))


def kept_of(url: str, env: Mapping[str, str]) -> list[Access]:
    """What was kept of the server at this address."""
    found = (read_access(file) for file in _kept_files(env))
    return [kept for kept in found if kept is not None and (_same(kept.url, url) or secures(kept, url))]


def _with(kept: Access, token: str | None, namespace: str | None) -> Access:
    """A kept server with what was given; another token may belong to another tenant."""
    if token and token != kept.token:
        return kept._replace(token=token, namespace=namespace, sign_in=None)
    return kept._replace(namespace=namespace or kept.namespace)


def check_token(token: str | None) -> str | None:
    """The token as given; raises Unauthenticated if it cannot be one, as when half of it was copied."""
    name, underscore, secret = (token or "").removeprefix(_PREFIX).partition("_")
    of_provider = bool(token) and all((token or "").split(".")) and (token or "").count(".") == 2
    if token and not of_provider and not (token.startswith(_PREFIX) and name and underscore and secret):
        raise Unauthenticated(
            "that is not a token of Isthmus: one looks like ist_NAME_SECRET; was it cut off? "
            "`isthmus token create USER` makes one"
        )
    return token


def kept_access(env: Mapping[str, str]) -> Access | None:
    """What `isthmus login` or `isthmus up` left."""
    found = kept_file(env)
    return read_access(found) if found else None


def kept_file(env: Mapping[str, str]) -> Path | None:
    """The kubeconfig that `isthmus login` or `isthmus up` left."""
    return next(_kept_files(env), None)


def _kept_files(env: Mapping[str, str]) -> Iterator[Path]:
    if read_access(login := login_file(env)) is not None:
        yield login
    for name in (env.get("KUBECONFIG") or "").split(os.pathsep):
        if name and _ours(Path(name)) is not None:
            yield Path(name)
    if (local := _local_file(env)) is not None:
        yield local


def local_access(env: Mapping[str, str]) -> Access | None:
    """What `isthmus up` of the same user keeps in its usual folder."""
    local = _local_file(env)
    return read_access(local) if local else None


def _local_file(env: Mapping[str, str]) -> Path | None:
    local = local_instance(env) / "kubeconfig"
    try:
        return local if local.stat().st_uid == os.getuid() else None
    except OSError:
        return None


def login_file(env: Mapping[str, str]) -> Path:
    """The kubeconfig of `isthmus login`."""
    return _home(env, "XDG_CONFIG_HOME", ".config") / "isthmus" / "kubeconfig"


def local_instance(env: Mapping[str, str]) -> Path:
    """Where `isthmus up` keeps everything unless it is asked otherwise."""
    from isthmus.config.server import default_data_folder

    return default_data_folder(dict(env))


def cache_home(env: Mapping[str, str] | None = None) -> Path:
    """The user's cache folder."""
    return _home(os.environ if env is None else env, "XDG_CACHE_HOME", ".cache")


def _home(env: Mapping[str, str], variable: str, default: str) -> Path:
    reported = env.get(variable) or ""
    return Path(reported) if reported.startswith("/") else Path(env.get("HOME") or Path.home()) / default


def _ours(path: Path) -> Access | None:
    name = current_context(path)
    return read_access(path) if name and name.startswith(CONTEXT_PREFIX) else None


def _same(one: str, other: str) -> bool:
    return one.rstrip("/").lower() == other.rstrip("/").lower()


def is_loopback(url: str) -> bool:
    """Whether an address is of this machine alone."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def secures(kept: Access, url: str) -> bool:
    """Whether this is the TLS side of a server on this machine, whose plain side is meant."""
    if not kept.url.startswith("https:") or not (is_loopback(kept.url) and is_loopback(url)):
        return False
    try:
        return urlsplit(kept.url).port == urlsplit(url).port
    except ValueError:  # not a port at all, which whoever connects will say
        return False


def _token_file(env: Mapping[str, str]) -> str | None:
    file = env.get("ISTHMUS_TOKEN_FILE")
    if not file:
        return None
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise Misconfigured(f"ISTHMUS_TOKEN_FILE cannot be read: {error}") from None


def _ca_file(env: Mapping[str, str]) -> bytes | None:
    file = env.get("ISTHMUS_CA_FILE")
    if not file:
        return None
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Misconfigured(f"ISTHMUS_CA_FILE cannot be read: {error}") from None
