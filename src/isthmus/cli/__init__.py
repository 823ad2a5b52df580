"""`isthmus`: the command line.

Belongs here: words, tables, prompts, exit codes. Does not: anything a program would want too (that is `client/`).

One module per group of commands, imported when one of them is called (`app`). `isthmus run` has a reader of its own
for the ordinary case (`run_words`), because it is typed all day and must feel like running the command here: Typer
alone costs as much time as everything else together. Whatever that reader does not understand goes to Typer.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The entry point: never a traceback, unless ISTHMUS_DEBUG is set."""
    from .failures import guarded

    sys.exit(guarded(_call, sys.argv[1:]))


def _call(words: list[str]) -> int:
    if words[:1] == ["run"] and "_ISTHMUS_COMPLETE" not in os.environ:
        from .run_words import read_words

        if (options := read_words(words[1:])) is not None:
            from .running import run

            return run(options)
    from .app import call

    return call(words)
