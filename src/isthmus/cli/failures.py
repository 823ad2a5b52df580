"""From errors to exit codes and one line on standard error: the only place that decides either.

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | it failed |
| 2 | the words or the values are wrong: usage, invalid manifest |
| 3 | there is no such thing |
| 4 | not signed in, or not allowed |
| 5 | the server, or a part of it, does not answer just now: the same command may work later |
| 6 | it is not as it would have to be: changed by somebody else, the name taken, or the job over |

`isthmus run` and `isthmus job --wait` return what the job returned; see their help for the codes beyond that.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from .printing import printable

FAILED, USAGE, NOT_FOUND, DENIED, UNAVAILABLE, CONFLICT = 1, 2, 3, 4, 5, 6
INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES_HELP = (
    "Exit codes: 0 done, 1 failed, 2 wrong words or values, 3 not found, 4 not signed in or not allowed, "
    "5 the server does not answer, 6 changed by somebody else, the name is taken, or the job is over."
)


def guarded(call: Callable[[list[str]], int], words: list[str]) -> int:
    """Call, report what goes wrong, and answer the exit code."""
    _open_streams()
    try:
        code = call(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads our output has had enough. What is still buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("ISTHMUS_DEBUG"):
            raise
        return report(error)
    return code


def _open_streams() -> None:
    """Streams that the caller has closed lead nowhere; else the next file that is opened would be in their place."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            setattr(sys, name, open(descriptor, mode, closefd=False))  # noqa: SIM115


def report(error: Exception) -> int:
    """Show the user in red, and answer the exit code."""
    from isthmus.errors import IsthmusError

    if isinstance(error, IsthmusError):
        say_error(error.message)
        return exit_code(error)
    if isinstance(error, OSError) and error.strerror:
        say_error(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        # A file that was named and cannot be read is a wrong word, not a job that failed.
        return USAGE if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError) else FAILED
    if isinstance(error, TimeoutError):
        say_error(str(error))
        return FAILED
    say_error(
        f"this is a fault in Isthmus ({type(error).__name__}: {error}); "
        "run it again with ISTHMUS_DEBUG=1 and report what it shows"
    )
    return FAILED


def exit_code(error: Exception) -> int:
    """The code that stands for an error."""
    from isthmus import errors

    table: tuple[tuple[type[Exception], int], ...] = (
        (errors.Invalid, USAGE),
        (errors.NotFound, NOT_FOUND),
        (errors.Unauthenticated, DENIED),
        (errors.Forbidden, DENIED),
        (errors.Unavailable, UNAVAILABLE),
        (errors.Expired, UNAVAILABLE),
        (errors.Conflict, CONFLICT),
    )
    return next((code for kind, code in table if isinstance(error, kind)), FAILED)


def say_error(message: str) -> None:
    """One line in red on standard error."""
    say(message, "31")


def say(message: str, colour: str = "2") -> None:
    """One line of ours on standard error, dim unless asked otherwise, so that it is never mistaken for a job's."""
    line = f"isthmus: {printable(' '.join(message.split()))}"
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        line = f"\x1b[{colour}m{line}\x1b[0m"
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def write_all(descriptor: int, data: bytes) -> None:
    """Write a job's bytes as they are: they need not be text.

    Not through sys.stdout: a thread that holds its buffer's lock at exit would bring the interpreter down.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
