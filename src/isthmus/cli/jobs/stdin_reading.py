"""Whether `isthmus run` sends its standard input along, and reading it.

It is sent when it was meant for this command: a pipe or a file that the command was given for itself. A terminal, a
socket (as under `ssh host isthmus run …`) and /dev/null are not sent. Nor is one that whoever started the command has
as well: `while read line; do isthmus run …; done` must not lose its lines to the first job. `--stdin` sends it
all the same, `--no-stdin` never does.
"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isthmus.cli.failures import say
from isthmus.errors import Invalid

from .run_words import RunOptions

_PATIENCE = 2.0
"""Seconds of silence before it is said what is waited for."""


@contextmanager
def standard_input(options: RunOptions) -> Iterator[Path | None]:
    """What the job shall read, as a file for as long as it takes to send it; None: nothing."""
    if options.stdin and options.no_stdin:
        raise Invalid("--stdin and --no-stdin contradict each other; give one")
    if options.no_stdin or not (options.stdin or _is_for_us(options.quiet)):
        yield None
        return
    from isthmus.client.standard_input import copy

    with tempfile.NamedTemporaryFile(prefix="isthmus-stdin-") as file:
        hint = threading.Timer(_PATIENCE, _say_what_is_waited_for)
        hint.daemon = True
        if not options.quiet:
            hint.start()
        try:
            size = copy(0, file)
        except OSError as error:
            raise Invalid(f"standard input cannot be read: {error.strerror}; --no-stdin does without it") from None
        finally:
            hint.cancel()
        yield Path(file.name) if size else None


def _say_what_is_waited_for() -> None:
    until = "Ctrl-D ends it" if os.isatty(0) else "--no-stdin does without it"
    say(f"reading standard input, which is sent along when it ends; {until}")


def _is_for_us(quiet: bool) -> bool:
    """Whether standard input is a pipe or a file, from its beginning, that nobody else reads."""
    try:
        info = os.fstat(0)
        if stat.S_ISREG(info.st_mode):
            if os.lseek(0, 0, os.SEEK_CUR):
                return False  # somebody has begun to read it, such as a loop in a script
        elif not stat.S_ISFIFO(info.st_mode):
            return False
    except OSError:  # it is closed
        return False
    if not _is_shared(info):
        return True
    if not quiet and stat.S_ISFIFO(info.st_mode) and _waiting_bytes():
        say("standard input is not sent, because what started this command has it too; -i sends it")
    return False


def _is_shared(info: os.stat_result) -> bool:
    """Whether the process that started this one has the same standard input; False where that cannot be seen."""
    try:
        parents = os.stat(f"/proc/{os.getppid()}/fd/0")
    except OSError:
        return False
    return (parents.st_dev, parents.st_ino) == (info.st_dev, info.st_ino)


def _waiting_bytes() -> bool:
    """Whether something lies in the pipe already."""
    import fcntl
    import termios

    waiting = bytearray(4)
    fcntl.ioctl(0, termios.FIONREAD, waiting)
    return any(waiting)
