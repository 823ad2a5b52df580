"""What lies in a folder, in a form that shows whether anything was changed."""

from __future__ import annotations

import os
from pathlib import Path


def tree_of(root: Path) -> dict[str, tuple[int, int, int, int]]:
    """Mode, size, inode and time of change of everything below a folder. Sockets and locks of living processes too."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder) / name
            try:
                seen = path.lstat()
            except FileNotFoundError:  # gone since it was listed
                continue
            found[str(path.relative_to(root))] = (seen.st_mode, seen.st_size, seen.st_ino, seen.st_mtime_ns)
    return found
