"""Shells on the login node that are kept, so that a command costs one message there and one back.

A session of its own for each command makes sshd start a process, that one a shell, and both sides exchange half a dozen
messages before and after; with `sbatch` that doubles the time, and most of the processor time. Here a shell waits for
lines, runs each, and writes down how it ended behind a mark that is new each time, so that no output can pretend to be
the end. A line holds one command, quoted; what the command reads is in the line if it is short, or follows it, by its
length. Small texts are called as functions of that shell, since it is the processes that cost.

A command that must wait for something (`ready`) is started at once, and its input sent when that is done. If that
fails, or the connection breaks, or we die, the input is empty. A shell that was not heard to the end is not used again.
"""

from __future__ import annotations

import asyncio
import secrets
import select
import shlex
from collections.abc import Sequence
from typing import Any

from isthmus._kit.children import MOST_OUTPUT, Ready, TooMuchOutput

from .commands import Done

_LOOP = 'mask=$(umask); while IFS= read -r line; do eval "$line"; umask $mask; done'
START = f"exec sh -c {shlex.quote(_LOOP)}"
_PIECE, _LONGEST_LINE, _SHORT = 1 << 16, 1 << 13, 1 << 10


def fits(command: str, stdin: bytes = b"") -> bool:
    """Whether a command can be such a line. A shell reads lines byte by byte, so long ones are sent otherwise.

    So is much that a command reads: what comes in one piece is never left to the shell if the command ends early.
    """
    return "\n" not in command and len(command) <= _LONGEST_LINE and len(stdin) <= select.PIPE_BUF


class Shell:
    """One shell, over a process of asyncssh without encoding."""

    def __init__(self, process: Any) -> None:
        self._process = process

    @property
    def is_alive(self) -> bool:
        """Whether it is not known to have ended."""
        return not (self._process.stdout.at_eof() or self._process.stdin.is_closing())

    def close(self) -> None:
        """End it. What it runs finds the end of its input."""
        self._process.close()

    async def run(self, command: str, stdin: bytes = b"", ready: Ready | None = None, *, reads: bool = False) -> Done:
        """Run a line to the end; raises EOFError if the shell ended before. Afterwards it can be used again.

        With `reads` the command itself reads what it is given, to the last byte, and no more.
        """
        mark = secrets.token_hex(16)
        given = b"" if reads else stdin
        if 0 < len(given) <= _SHORT and b"\0" not in given:
            stdin = b""
        line = _line(command, given, mark, waits=ready is not None, closed=not reads, shown=not stdin)
        self._process.stdin.write(line.encode("utf-8", "surrogateescape"))
        if ready is not None:
            await ready()
            self._process.stdin.write(b"go\n")
        if stdin:
            self._process.stdin.write(stdin)
        errors = asyncio.create_task(_until(self._process.stderr, mark))
        try:
            out, code = await _until(self._process.stdout, mark)
            err, _ = await errors
        finally:
            errors.cancel()
            await asyncio.gather(errors, return_exceptions=True)
        return Done(code, out.decode(errors="replace"), err.decode(errors="replace"))


def function(text: str, words: Sequence[str]) -> str:
    """A line that calls a text with words, in the shell itself; the text ends early by `return`."""
    return f"called() {{ {text}; }}; called {shlex.join(words)}"


def _line(command: str, given: bytes, mark: str, *, waits: bool, closed: bool, shown: bool) -> str:
    """What the shell reads; `shown`: with what the command reads in it, which the shell writes without a process."""
    feed = f"head -c {len(given)}"
    if shown:
        text = given.decode("utf-8", "surrogateescape").replace("\\", "\\\\").replace("\n", "\\n")
        feed = f"printf %b {shlex.quote(text)}"
    if waits:
        command = f"{{ IFS= read -r go && {feed}; }} | {command}"
    elif given:
        command = f"{feed} | {{ {command}; }}"
    elif closed:
        command = f"{{ {command}; }} </dev/null"
    return f"{command}; printf '\\n%s %d\\n' {mark} $?; printf '\\n%s 0\\n' {mark} >&2\n"


async def _until(stream: Any, mark: str) -> tuple[bytes, int]:
    """What comes before the mark, and the number behind it."""
    sign, data, looked = f"\n{mark} ".encode(), bytearray(), 0
    while (at := data.find(sign, looked)) < 0 or b"\n" not in data[at + len(sign) :]:
        looked = max(0, len(data) - len(sign)) if at < 0 else at
        piece = await stream.read(_PIECE)
        if not piece:
            raise EOFError
        data += piece
        if len(data) > MOST_OUTPUT:
            raise TooMuchOutput(f"it wrote more than {MOST_OUTPUT >> 20} MiB")
    return bytes(data[:at]), int(data[at + len(sign) :].split(b"\n")[0])
