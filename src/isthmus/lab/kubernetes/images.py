"""Images made on the spot, with nothing but the standard library: an image is a tar of tars.

The lab's image holds busybox (a shell and the usual small programs, in one static file) and GNU `env`, which scripts
with `#!/usr/bin/env -S …` need, with the libraries it wants. The pause image, in which every pod's namespaces are
kept, is the same with another program to start.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

from isthmus.errors import Misconfigured

from .layout import IMAGE, PAUSE

BUSYBOX = Path("/usr/bin/busybox")
_FOLDERS = ("bin", "usr", "usr/bin", "etc", "tmp", "work", "isthmus")
_ACCOUNTS = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"


def make(path: Path) -> None:
    """Write an archive with both images."""
    layer = _layer()
    digest = hashlib.sha256(layer).hexdigest()
    started = {IMAGE: ["/bin/sh"], PAUSE: ["/bin/sleep", "2147483647"]}
    listed, parts = [], {f"{digest}.tar": layer}
    for name, command in started.items():
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Cmd": command},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "history": [{"created_by": "isthmus lab"}],
            },
            sort_keys=True,
        ).encode()
        file = f"{hashlib.sha256(config).hexdigest()}.json"
        parts[file] = config
        listed.append({"Config": file, "RepoTags": [name], "Layers": [f"{digest}.tar"]})
    parts["manifest.json"] = json.dumps(listed).encode()
    new = path.with_name(f"{path.name}.new")
    with tarfile.open(new, "w") as archive:
        for name, content in parts.items():
            _add(archive, name, content, 0o644)
    new.replace(path)


def _layer() -> bytes:
    if not BUSYBOX.is_file():
        raise Misconfigured("The lab's image is made of busybox. Install it with: apt install busybox-static")
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder in ("tmp", "work", "isthmus") else 0o755
            layer.addfile(entry)
        _add(layer, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for applet in applets:
            if applet not in ("busybox", "env"):
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                layer.addfile(entry)
        _add(layer, "etc/passwd", _ACCOUNTS.encode(), 0o644)
        env = Path("/usr/bin/env").resolve()
        _add(layer, "usr/bin/env", env.read_bytes(), 0o755)
        for library in _libraries(env):
            _add(layer, str(library).lstrip("/"), library.read_bytes(), 0o755)
    return buffer.getvalue()


def _libraries(program: Path) -> list[Path]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", said)]


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
