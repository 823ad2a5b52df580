"""What a job sees that runs in an image: the image's folders, read-only, and in their places what is the job's own.

bubblewrap begins with an empty root; each folder and link at the top of the image is put there by itself, so that what
we mount (`/job`, `/tmp`, `/dev`, …) is never mounted through a link that the image brings along: bubblewrap, which may
be root, would follow it out of the sandbox. For the same reason something of the machine is shown below a folder of
the image only where all folders on the way are folders. An image does not change once it is unpacked, so that what is
looked at here still holds when the job starts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from isthmus.errors import EngineRefused
from isthmus.images.unpacking import MOUNTED

from .layout import RunFolder

OURS = ("dev", "job", "proc", "run", "sys", "tmp")
"""Folders at the top that are never the image's."""
_MOST_ENTRIES = 200


def image_view(
    image: Path, at: str, folder: RunFolder, devices: Iterable[str], visible: Sequence[Path], hidden: Sequence[Path]
) -> list[str]:
    """Options of bubblewrap that make up the view, with its root at a folder, or (empty) as the root itself."""
    options = ["--perms", "0755", "--dir", at] if at else []
    options += _of_image(image, at)
    options += ["--dev", f"{at}/dev", "--perms", "1777", "--tmpfs", f"{at}/dev/shm"]  # noqa: S108
    # What a process may write there about itself makes it harder to kill when memory is short (oom_score_adj).
    options += ["--proc", f"{at}/proc", "--remount-ro", f"{at}/proc", "--ro-bind-try", "/sys", f"{at}/sys"]
    options += ["--bind", str(folder.work), f"{at}/job", "--bind", str(folder.tmp), f"{at}/tmp"]  # noqa: S108
    options += ["--perms", "0755", "--tmpfs", f"{at}/run", "--ro-bind", str(folder.launch), f"{at}/run/isthmus"]
    for name in ("/".join(parts) for parts in MOUNTED):
        options += ["--ro-bind-try", f"/{name}", f"{at}/{name}"]
    if _is_way(image, ("var", "tmp"), to_the_end=True):
        options += ["--bind", str(folder.tmp), f"{at}/var/tmp"]  # noqa: S108
    shown = [place for place in visible if _is_way(image, place.parts[1:])]
    for place in shown:
        for parent in reversed(place.parents[:-1]):
            if parent.parts[1] in OURS or not (image / parent.parts[1]).exists():
                options += ["--perms", "0755", "--dir", f"{at}{parent}"]
        options += ["--ro-bind-try", str(place), f"{at}{place}"]
    for place in hidden:
        if any(parent in shown for parent in place.parents):
            options += ["--tmpfs", f"{at}{place}"]
    for device in devices:
        if _is_way(image, Path(device).parts[1:]):
            options += ["--dev-bind", device, f"{at}{device}"]
    return options


def _of_image(image: Path, at: str) -> list[str]:
    with os.scandir(image) as found:
        entries = sorted((entry for entry in found if entry.name not in OURS), key=lambda entry: entry.name)
    if len(entries) > _MOST_ENTRIES:
        raise EngineRefused(f"The image cannot be used: it has more than {_MOST_ENTRIES} files and folders at its top.")
    options: list[str] = []
    for entry in entries:
        if entry.is_symlink():
            options += ["--symlink", os.readlink(entry.path), f"{at}/{entry.name}"]  # noqa: PTH115
        else:
            options += ["--ro-bind", entry.path, f"{at}/{entry.name}"]
    return options


def _is_way(image: Path, parts: Sequence[str], *, to_the_end: bool = False) -> bool:
    """Whether something can be mounted there: the image has folders all along, or has nothing to say there."""
    if parts[0] in OURS:
        return True
    at = image
    for number, part in enumerate(parts):
        at = at / part
        try:
            mode = at.lstat().st_mode
        except FileNotFoundError:
            return number == 0 and not to_the_end
        if not stat.S_ISDIR(mode):
            return False
    return True
