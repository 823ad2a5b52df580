"""`isthmus login`, `whoami`, `version`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.cli.failures import say
from isthmus.cli.options import Format, Namespace, Output, Url, client_for, format_of, said_before
from isthmus.cli.options import Token as TokenOption
from isthmus.cli.tables import write
from isthmus.errors import Invalid, IsthmusError, Misconfigured, Unauthenticated

_STDIN = "-"
_LONGEST_TOKEN = 4096


def login(
    url: Url = None,
    token: TokenOption = None,
    token_file: Annotated[str | None, typer.Option(metavar="FILE", help="File with the token; - is stdin.")] = None,
    namespace: Namespace = None,
    ca_file: Annotated[str | None, typer.Option(metavar="FILE", help="Certificates (PEM) to trust.")] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write here.", show_default="~/.config/isthmus/kubeconfig")
    ] = None,
    context: Annotated[str, typer.Option(help="Name of the context.")] = "isthmus",
    oidc: Annotated[
        str | None, typer.Option(metavar="ISSUER", help="With an identity provider, by a code that you confirm there.")
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="With --oidc: open none, only show the link.")
    ] = False,
) -> None:
    """Sign in, and keep that for `isthmus` and kubectl: with a token, or with an identity provider.

    Without --oidc, --token or --token-file the token is read from standard input, or asked for without being shown.

    \b
    Examples:
      isthmus login --url http://127.0.0.1:7070
      isthmus login --url https://isthmus.example.org --token-file token.txt
      isthmus login --url https://isthmus.example.org --oidc https://id.example.org
      isthmus login --url https://lab.example.org:7070 --token-file token.txt --ca-file ca.pem
      kubectl --kubeconfig ~/.config/isthmus/kubeconfig get jobs
    """
    from isthmus.client.config import is_loopback, login_file
    from isthmus.client.flows import namespace_of
    from isthmus.client.kubeconfigs import Access, without_secret, write_access
    from isthmus.client.oidc.sign_ins import SignIn, forget, keep, kept_sign_ins, new_file
    from isthmus.client.sync import Client

    before = said_before()
    if oidc and (token or before.token or token_file):
        raise Invalid("give --oidc or a token, not both")
    address, inside = without_secret((url or before.url or os.environ.get("ISTHMUS_URL") or "").rstrip("/"))
    if not address:
        raise Invalid("which server? name it: isthmus login --url http://127.0.0.1:7070")
    ca = Path(ca_file).read_bytes() if ca_file else None
    if ca is None and address.startswith("http://") and is_loopback(address):
        address, ca = _secured(address)
    file = Path(kubeconfig) if kubeconfig else login_file(os.environ)
    earlier = kept_sign_ins(file, context)
    kept: SignIn | None = None
    if oidc:
        from .provider_login import sign_in

        access, kept = sign_in(Access(address, None, None, ca), oidc, browser=not no_browser)
    else:
        access = Access(address, _secret(token or before.token or inside, token_file), None, ca)
    with Client.at(access) as client:
        me = client.whoami()
        groups = [str(group) for group in me.get("groups") or ()]
        home = namespace or before.namespace or _home(client, groups, namespace_of)
    if kept is not None:
        keep(place := new_file(file, context), kept)
        access = access._replace(token=None, sign_in=place)
    write_access(file, access._replace(namespace=home), context)  # from here on it is this login that counts
    for path in earlier:
        forget(path)
    sys.stdout.write(f"signed in to {address} as {me.get('username')}, tenant {home}\n")
    if address.startswith("http://") and not is_loopback(address):
        say(f"{address} is not encrypted: others on the network can read your token; ask for an https address", "33")
    if kubeconfig is None:
        say(f"kept in {file}; for kubectl: export KUBECONFIG={file}")


def _secured(address: str) -> tuple[str, bytes | None]:
    """The TLS side of a server on this machine, before any token is sent; as given, if it has none.

    What its own user's folder keeps of it is believed, else the authority that it names itself.
    """
    from isthmus.client.config import local_access, secures
    from isthmus.client.kubeconfigs import Access
    from isthmus.client.sync import Client

    if (kept := local_access(os.environ)) is not None and secures(kept, address):
        return kept.url, kept.ca
    secure = "https" + address.removeprefix("http")
    try:
        with Client.at(Access(address)) as client:
            ca = client.authority()
        with Client.at(Access(secure, None, None, ca)) as client:
            client.version()
    except IsthmusError:
        return address, None
    return secure, ca


def _home(client: Any, groups: list[str], namespace_of: Any) -> str:
    try:
        return str(namespace_of(groups))
    except Invalid as error:  # several tenants: the first, said aloud, is better than none
        tenants = sorted(t["metadata"]["name"] for t in client.list("tenants"))
        if not tenants:
            raise
        say(f"{error.message}; taking {tenants[0]}")
        return str(tenants[0])


def _secret(token: str | None, token_file: str | None) -> str:
    from isthmus.client.config import check_token

    if token and token_file:
        raise Invalid("give --token or --token-file, not both")
    from_stdin = token_file == _STDIN
    if token_file and not from_stdin:
        found = _read_token(Path(token_file))
    elif token or (not from_stdin and os.environ.get("ISTHMUS_TOKEN")):
        found = token or os.environ["ISTHMUS_TOKEN"]
    elif from_stdin or not sys.stdin.isatty():
        found = sys.stdin.readline()
    else:
        from getpass import getpass

        found = getpass("Token (not shown): ")
    if not found.strip():
        raise Invalid("no token was given; create one with `isthmus token create USER`, or ask an administrator")
    return check_token(found.strip()) or ""


def _read_token(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return content.read(_LONGEST_TOKEN).decode("ascii")
    except UnicodeDecodeError:
        raise Invalid(f"{file} does not hold a token: a token is one line of text, such as ist_NAME_SECRET") from None


def env(url: Url = None, token: TokenOption = None) -> None:
    """Write what kubectl, curl and other programs need to know, for a shell to read.

    \b
    Example:
      eval "$(isthmus env)"
      kubectl get jobs
      curl -s $ISTHMUS_URL/readyz
    """
    from shlex import quote

    from isthmus.cli.platform.console import browser_address
    from isthmus.client.config import find_access, kept_file, local_instance

    before = said_before()
    access = find_access(url or before.url, token or before.token)
    if access.sign_in is not None:
        from isthmus.client.oidc.sign_ins import current

        access = current(access)
    found = {
        "ISTHMUS_URL": browser_address(access.url),
        "ISTHMUS_TOKEN": access.token or "",
        "KUBECONFIG": str(kept_file(os.environ) or ""),
    }
    data = local_instance(os.environ)
    if data.is_dir() and os.access(data, os.W_OK):
        found["ISTHMUS_DATA"] = str(data)
    sys.stdout.write("".join(f"export {name}={quote(value)}\n" for name, value in found.items() if value))


def whoami(output: Output = None, url: Url = None, token: TokenOption = None) -> None:
    """Show who you are to the server, and your roles.

    \b
    Example:
      isthmus whoami
    """
    form = format_of(output)
    with client_for(url, token) as client:
        me = client.whoami()
        address = client.url
    if form in (Format.JSON, Format.YAML):
        write(me, form)
        return
    roles = [group.split(":")[1:] for group in me.get("groups") or () if str(group).startswith("isthmus:")]
    sys.stdout.write(f"{me.get('username')} at {address}\n")
    for tenant, role in roles:
        sys.stdout.write(f"  {role} {'everywhere' if tenant == 'platform' else f'in {tenant}'}\n")


def version(output: Output = None, url: Url = None, token: TokenOption = None) -> None:
    """Show the version of this program and of the server.

    \b
    Example:
      isthmus version -o json
    """
    from isthmus import __version__

    found: dict[str, Any] = {"client": __version__, "server": None}
    problem = ""
    try:
        with client_for(url, token) as client:
            found["server"] = client.version().get("gitVersion")
    except (Misconfigured, Unauthenticated) as error:
        problem = error.message
    except IsthmusError as error:
        problem = error.message
    form = format_of(output)
    if form in (Format.JSON, Format.YAML):
        write(found, form)
        return
    sys.stdout.write(f"client  {found['client']}\nserver  {found['server'] or f'not reached ({problem})'}\n")
