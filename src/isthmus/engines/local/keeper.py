"""The keeper: a small process, one per root, that forks a supervisor for each run. Started as a script.

Forking from a small warm process takes a millisecond or two, where a new Python takes fifteen. The keeper knows
nothing and remembers nothing: a request names a run, the supervisor forked for it answers and does the rest. If the
keeper is killed, supervisors go on, and the next request starts a new keeper.

One request per connection: `start <run id>`, `ping`, `stop`, or one that leads into a run (`entering.py`). The socket
is in a folder that only we may enter.
There is one keeper per version of its own code, so that an upgrade never talks to yesterday's; a keeper that nobody
has asked anything for a while leaves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import types
from pathlib import Path

IDLE_SECONDS = 600.0
TRY_NETWORK = "--try-network"
"""Started with this word and a path of slirp4netns, it runs the command that follows and leaves."""
_LOOK_SECONDS = 5.0


def load_alone() -> None:
    """Let `isthmus.…` be imported without running `isthmus/__init__.py`, which may load far more than is needed."""
    package = types.ModuleType("isthmus")
    package.__path__ = [str(Path(__file__).resolve().parents[2])]
    sys.modules["isthmus"] = package


def main(root: str, name: str) -> None:
    """Serve, in the background, unless another keeper does; returns (exits) once somebody serves."""
    import isthmus.engines.local.entering
    import isthmus.engines.local.supervising  # noqa: F401 - warm: every supervisor is forked with it loaded
    from isthmus.engines.local.layout import try_lock

    os.chdir(root)  # the socket's path is relative: absolute ones may be too long
    lock = try_lock(Path(f"{name}.lock"))
    if lock is None:
        return
    address = f"{name}.sock"
    with contextlib.suppress(FileNotFoundError):
        Path(address).unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.umask(0o077)
    listener.bind(address)
    listener.listen(1024)
    if os.fork():
        os._exit(0)  # the listener is there: whoever started us may connect
    os.setsid()
    serve(listener, address, lock)


def serve(listener: socket.socket, address: str, lock: int) -> None:
    """Answer until asked to stop, until nobody asks any more, or until the root is gone."""
    from isthmus.engines.local.processes import PR_SET_CHILD_SUBREAPER, prctl

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are not waited for
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # nor what they leave behind: in a container nobody else might bury it
    identity = os.stat(address).st_ino
    listener.settimeout(_LOOK_SECONDS)
    last = time.monotonic()
    while time.monotonic() - last < IDLE_SECONDS:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            try:
                if os.stat(address).st_ino != identity:
                    return
            except FileNotFoundError:
                return
            continue
        last = time.monotonic()
        with connection:
            connection.settimeout(2.0)
            try:
                if not answer(connection, listener, lock):
                    return
            except OSError as error:
                print(f"keeper: a request failed: {error}", file=sys.stderr, flush=True)


def answer(connection: socket.socket, listener: socket.socket, lock: int) -> bool:
    """Serve one request; whether to go on."""
    word, _, argument = connection.recv(256).decode().strip().partition(" ")
    if word == "ping":
        connection.sendall(b"here\n")
    elif word == "stop":
        Path(listener.getsockname()).unlink(missing_ok=True)
        listener.close()
        connection.sendall(b"bye\n")
        return False
    elif word in ("start", "connect", "execute"):
        begin(word, argument, connection, listener, lock)
    return True


def begin(word: str, argument: str, connection: socket.socket, listener: socket.socket, lock: int) -> None:
    """Fork a supervisor, or what leads into a run; it answers by itself."""
    from isthmus.engines.local.entering import lead
    from isthmus.engines.local.layout import Layout
    from isthmus.engines.local.supervising import supervise

    run_id, _, rest = argument.partition(" ")
    folder = Layout(Path.cwd()).run(run_id)
    try:
        child = os.fork()
    except OSError as error:
        connection.sendall(f"failed {error}\n".encode())
        return
    if child:
        return
    code = 1
    try:
        os.close(lock)
        listener.close()

        def reply(text: str) -> None:
            with contextlib.suppress(OSError), connection:
                connection.sendall(text.encode() + b"\n")

        if word == "start":
            supervise(folder, reply)
        else:
            lead(word, folder, rest, connection)
        code = 0
    except BaseException as error:  # noqa: BLE001 - a supervisor must never become a second keeper
        print(f"{word} of {run_id}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def try_network(program: str, command: list[str]) -> int:
    """Run a command in a network of its own, as a job would be, in a process that has one thread."""
    from isthmus.engines.local.networking import try_out

    try:
        return try_out(program, command)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    load_alone()
    if sys.argv[1] == TRY_NETWORK:
        sys.exit(try_network(sys.argv[2], sys.argv[3:]))
    main(sys.argv[1], sys.argv[2])
