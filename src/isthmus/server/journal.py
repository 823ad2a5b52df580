"""The log of the program itself: one line per message, a constant text and key-values after it."""

from __future__ import annotations

import logging
import sys

_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class KeyValueFormatter(logging.Formatter):
    """`2026-01-31T18:00:00Z INFO placement failed error="…"`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback below it where there is one."""
        extras = " ".join(f"{key}={_shown(value)}" for key, value in vars(record).items() if key not in _STANDARD)
        moment = self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z")
        line = f"{moment} {record.levelname} {record.name}: {record.getMessage()} {extras}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _shown(value: object) -> str:
    # Others' words must not look like lines of ours, nor move the reader's cursor.
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(value))
    return f'"{text}"' if " " in text else text


def start_journal(level: str) -> None:
    """Send all messages to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    logging.getLogger("asyncio").setLevel(logging.WARNING)
