"""`isthmus up`, `serve`, `down`: a control plane on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.failures import say
from isthmus.errors import Invalid, IsthmusError, Misconfigured

if TYPE_CHECKING:
    from isthmus.config import ServerSettings
    from isthmus.server.main import RunningServer

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Folder of everything this instance keeps.",
        show_default="~/.local/share/isthmus, for root /var/lib/isthmus",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Where the API listens; port 0 takes a free one.",
        show_default="127.0.0.1:7070",
    ),
]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="postgresql://… or kubernetes[:KUBECONFIG], not the embedded SQLite."),
]
FilesFolder = Annotated[
    Path | None,
    typer.Option(
        "--files", help="Folder of files that several control planes share.", show_default="in the data folder"
    ),
]
Cert = Annotated[
    Path | None, typer.Option("--tls-cert", help="Certificate chain (PEM); without one the instance makes its own.")
]
KeyFile = Annotated[Path | None, typer.Option("--tls-key", help="Key of the certificate (PEM).")]
AuditForward = Annotated[
    str | None,
    typer.Option(
        "--audit-forward",
        metavar="PLACE",
        help="Send audit entries to syslog, syslog://HOST:PORT, syslog+tcp://HOST:PORT or a file as well.",
    ),
]
InstancesDomain = Annotated[
    str | None,
    typer.Option(
        "--instances-domain",
        metavar="DOMAIN",
        help="Each instance is a host below it; its wildcard name must lead here.",
        show_default="on loopback instances.localhost",
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Permit plain HTTP on an address others can reach.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Return once it is ready; it goes on in the background.")]
LogLevel = Annotated[str, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR.")]

DEFAULT_LISTEN = "127.0.0.1:7070"


def up(
    data: Data = None,
    listen: Listen = None,
    store: StoreUrl = None,
    files: FilesFolder = None,
    tls_cert: Cert = None,
    tls_key: KeyFile = None,
    insecure: Insecure = False,
    instances_domain: InstancesDomain = None,
    audit_forward: AuditForward = None,
    detach: Detach = False,
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level",
            help="DEBUG, INFO, WARNING or ERROR.",
            show_default="WARNING; with --detach INFO, to server.log",
        ),
    ] = None,
) -> None:
    """Start Isthmus on this machine, and say how to use it.

    Everything is kept in one folder; starting again finds it all. Jobs go on when Isthmus stops, and are found
    again when it is back.

    \b
    Examples:
      isthmus up                       here, until Ctrl-C
      isthmus up --detach              in the background, until isthmus down
      isthmus up --data ./try --listen 127.0.0.1:0
                                       a second one, out of the way
      isthmus up --store postgresql://host/isthmus
                                       several on one database, of which one leads
    """
    level = log_level or ("INFO" if detach else "WARNING")
    settings = _settings(
        data, listen, store, files, tls_cert, tls_key, insecure, instances_domain, audit_forward, level
    )
    from isthmus.server.main import running_instance

    if (there := running_instance(settings.data)) and there.url:
        typer.echo(f"Isthmus is already running (process {there.pid}).")
        if listen and elsewhere(there.url, settings.host, settings.port):
            stop = f"`isthmus down{_data_option(settings)}`"
            say(f"it keeps listening at {there.url}, not at {listen}; to move it, first {stop}", "33")
        greet(there, stop=f"isthmus down{_data_option(settings)}")
        return
    if detach:
        greet(
            _detached(settings, store),
            stop=f"isthmus down{_data_option(settings)}",
        )
        return
    _serve(settings, lambda instance: greet(instance, stop="Ctrl-C"))


def serve(
    data: Data = None,
    listen: Listen = None,
    store: StoreUrl = None,
    files: FilesFolder = None,
    tls_cert: Cert = None,
    tls_key: KeyFile = None,
    insecure: Insecure = False,
    instances_domain: InstancesDomain = None,
    audit_forward: AuditForward = None,
    log_level: LogLevel = "INFO",
) -> None:
    """Serve in the foreground, as a service manager wants it.

    Writes log lines only, stops on SIGTERM.

    Example:

      isthmus serve --data /var/lib/isthmus --listen 127.0.0.1:7070
    """
    settings = _settings(
        data, listen, store, files, tls_cert, tls_key, insecure, instances_domain, audit_forward, log_level
    )
    _serve(settings, lambda instance: typer.echo(f"listening on {instance.url}", err=True))


def down(data: Data = None) -> None:
    """Stop the instance that runs from a folder. Its jobs go on.

    Example:

      isthmus down
    """
    from isthmus.config.server import default_data_folder
    from isthmus.engines.local.keeping import stop_keepers
    from isthmus.server.main import running_instance

    folder = data or default_data_folder(dict(os.environ))
    instance = running_instance(folder)
    if instance is None:
        typer.echo(f"no instance runs from {folder}")
        return
    os.kill(instance.pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while running_instance(folder):
        if time.monotonic() > deadline:
            raise Misconfigured(f"process {instance.pid} does not stop; look at {folder}/server.log")
        time.sleep(0.05)
    stop_keepers(folder / "sites")
    typer.echo("stopped; jobs that run go on and are found again at the next start")


def _serve(settings: ServerSettings, ready: object) -> None:
    from isthmus.server.journal import start_journal
    from isthmus.server.main import run

    start_journal(settings.log_level)
    run(settings, ready)  # type: ignore[arg-type]


def _settings(
    data: Path | None,
    listen: str | None,
    store: str | None,
    files: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
    instances_domain: str | None,
    audit_forward: str | None,
    log_level: str,
) -> ServerSettings:
    from isthmus.config.server import ServerSettings, default_data_folder

    listen = listen or DEFAULT_LISTEN
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"--listen {listen!r} is not an address; write it like 127.0.0.1:7070")
    if (tls_cert is None) != (tls_key is None):
        raise Invalid("--tls-cert and --tls-key go together; give both or none")
    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise Invalid(f"--log-level {log_level!r} is not one of DEBUG, INFO, WARNING, ERROR")
    if audit_forward:
        from isthmus.identity.audit.forwarding import parse_place

        parse_place(audit_forward)
    return ServerSettings(
        data=(data or default_data_folder(dict(os.environ))).absolute(),
        host=host.strip("[]"),
        port=int(port),
        store=_store(store or os.environ.get("ISTHMUS_STORE")),
        shared_files=files,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
        instances_domain=instances_domain,
        audit_forward=audit_forward or "",
        log_level=log_level,
    )


def _store(word: str | None) -> str | None:
    from .places import store_location

    return store_location(word) if word else None


def elsewhere(url: str, host: str, port: int) -> bool:
    """Whether an instance at this address is not where it is now asked to listen."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    open_to_all = host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
    other_host = parts.scheme == "http" if open_to_all else parts.hostname != host.lower()
    return other_host or (port != 0 and parts.port != port)


def _detached(settings: ServerSettings, store: str | None) -> RunningServer:
    """Start `serve` on its own and wait until it is ready."""
    from isthmus.server.main import running_instance

    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    words = [sys.executable, "-m", "isthmus.cli", "serve", "--data", str(settings.data)]
    words += ["--listen", f"{host}:{settings.port}", "--log-level", settings.log_level]
    given = (
        ("--files", settings.shared_files),
        ("--tls-cert", settings.tls_certificate),
        ("--tls-key", settings.tls_key),
        ("--audit-forward", settings.audit_forward),
    )
    for option, value in given:
        words += [option, str(value)] if value else []
    words += ["--insecure"] if settings.insecure else []
    words += ["--instances-domain", settings.instances_domain] if settings.instances_domain else []
    # The address of the store may hold a password: it goes by the environment, which only its owner can read.
    environment = {**os.environ, "ISTHMUS_STORE": store} if store else dict(os.environ)
    settings.data.mkdir(parents=True, exist_ok=True)
    journal = settings.data / "server.log"
    with journal.open("ab") as log:
        journal.chmod(0o600)
        start = log.tell()
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
        )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if child.poll() is not None:
            said = journal.read_bytes()[start:].decode(errors="replace").strip()
            why = said.splitlines()[-1].removeprefix("isthmus: ") if said else "no reason given"
            raise Misconfigured(f"Isthmus did not start: {why}")
        if (instance := running_instance(settings.data)) and instance.url:
            return instance
        time.sleep(0.02)
    raise Misconfigured(f"Isthmus is not ready after a minute; look at {journal}")


def _data_option(settings: ServerSettings) -> str:
    from isthmus.config.server import default_data_folder

    return "" if settings.data == default_data_folder(dict(os.environ)) else f" --data {settings.data}"


def greet(instance: RunningServer, *, stop: str) -> None:
    """Say where it runs, and how to use and stop it."""
    warn_without_sandbox()
    data = instance.data
    sign_in = f"isthmus login --url {instance.url} --token-file {data / 'admin.token'}"
    if instance.url.startswith("https://") and (data / "tls" / "ca.pem").exists():
        sign_in += f" --ca-file {data / 'tls' / 'ca.pem'}"
    try_it = "isthmus run -- echo hello"
    # Where commands find this instance by themselves, signing in is for elsewhere.
    steps = (
        {"sign in": sign_in, "try": try_it}
        if found_unasked(instance.url)
        else {"1. sign in": sign_in, "2. try": try_it}
    )
    facts = {
        "API": instance.url,
        "console": _console(instance),
        **steps,
        "kubectl": f"kubectl --kubeconfig {data / 'kubeconfig'} get jobs",
        "stop": stop,
    }
    lines = ["", "  Isthmus is up.", "", *(f"  {name:<11} {value}" for name, value in facts.items()), ""]
    typer.echo("\n".join(lines))
    sys.stdout.flush()


def warn_without_sandbox() -> None:
    """Say so where jobs on this machine are not isolated, or share its network."""
    from .checks import network_check, sandbox_check

    if (check := sandbox_check()).result != "ok":
        say(f"jobs on this machine are not isolated: {check.message}. {check.remedy}", "33")
    elif (check := network_check()).result != "ok":
        say(f"jobs on this machine share its network: {check.message}. {check.remedy}", "33")


def _console(instance: RunningServer) -> str:
    """A link that signs in, where this user may have one; else the address."""
    from isthmus.client.kubeconfigs import read_access
    from isthmus.client.sync import Client

    from .console import sign_in_link

    if instance.link:
        return instance.link
    try:
        if access := read_access(instance.data / "kubeconfig"):
            with Client.at(access) as client:
                return sign_in_link(client)
    except IsthmusError:
        pass
    return f"{instance.url}/console/"


def found_unasked(url: str) -> bool:
    """Whether commands of this user, in this shell, talk to the instance at this address already."""
    from urllib.parse import urlsplit

    from isthmus.client.config import find_access

    try:
        access = find_access()
    except IsthmusError:
        return False
    return bool(access.token or access.sign_in) and urlsplit(access.url).netloc == urlsplit(url).netloc
