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
        from .jobs.run_words import current_spellings, ours_first, read_words

        ours, moved = ours_first(words[1:])
        ours, hints = current_spellings(ours)
        if moved:
            hints.append(
                f"{' '.join(moved)} was read by isthmus run; to pass it to the script, write -- before the script"
            )
        if hints:
            from .failures import say

            for hint in hints:
                say(hint)
        words = ["run", *ours]
        if (options := read_words(words[1:])) is not None:
            from .jobs.running import run

            return run(options)
    from .app import call

    return call(words)
