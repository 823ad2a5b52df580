"""Files that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path

from isthmus._kit.ids import suffix


def write_private(path: Path, text: str) -> None:
    """Replace a file whole, readable by its owner only from its first byte on."""
    temporary = path.with_name(f".{path.name}.{suffix()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
