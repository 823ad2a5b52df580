"""What kubelets change on the machine itself: remembered before the first lab, put back after the last.

That goes for the folder too at which every kubelet looks for device plugins, whatever it is configured to. Each node
has its own folder mounted there, in a namespace of its own; whoever removes the place takes it from all of them.

Call both under the machine's lock.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

SETTINGS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
FOLDER = Path("/run/isthmus-lab-kubernetes")
KUBELET = Path("/var/lib/kubelet")
_PROC = Path("/proc/sys")


def remember(number: int, folder: Path = FOLDER, proc: Path = _PROC, kubelet: Path = KUBELET) -> None:
    """A lab begins."""
    kubelet.mkdir(exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "settings.json"
    if not kept.exists():
        kept.write_text(json.dumps({name: (proc / name).read_text().strip() for name in SETTINGS}))
    (folder / f"lab-{number}").touch()


def restore(number: int, folder: Path = FOLDER, proc: Path = _PROC, kubelet: Path = KUBELET) -> None:
    """A lab ended; after the last one the machine is as it was."""
    (folder / f"lab-{number}").unlink(missing_ok=True)
    kept = folder / "settings.json"
    if any(folder.glob("lab-*")) or not kept.exists():
        return
    for name, value in json.loads(kept.read_text()).items():
        if (proc / name).read_text().strip() != value:
            (proc / name).write_text(value)
    with contextlib.suppress(OSError):
        kubelet.rmdir()  # empty unless it is somebody else's
    kept.unlink()
    folder.rmdir()
