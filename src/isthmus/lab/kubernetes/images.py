"""Images made on the spot, with nothing but the standard library: an image is a tar of tars.

The lab's image holds busybox (a shell and the usual small programs, in one static file) and GNU `env`, which scripts
with `#!/usr/bin/env -S …` need, with the libraries it wants. The pause image, in which every pod's namespaces are
kept, is the same with another program to start. `operator_image` puts Isthmus itself on top of it.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from isthmus.errors import Misconfigured

from .layout import IMAGE, PAUSE

BUSYBOX = Path("/usr/bin/busybox")
SEARCHED = "/usr/local/bin:/usr/bin:/bin"
_FOLDERS = ("bin", "usr", "usr/bin", "etc", "tmp", "work", "isthmus")
_ACCOUNTS = "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Image:
    """What is written of one image."""

    name: str
    layers: Sequence[Path]
    """Archives of files, the lowest first."""
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def make(path: Path) -> None:
    """Write an archive with the images that every lab has."""
    layer = path.with_name(f"{path.name}.layer")
    write_base(layer)
    write(path, [Image(IMAGE, [layer], ["/bin/sh"]), Image(PAUSE, [layer], ["/bin/sleep", "2147483647"])])
    layer.unlink()


def write(path: Path, images: Iterable[Image]) -> None:
    """Write an archive that `ctr images import` and `docker load` take."""
    new = path.with_name(f"{path.name}.new")
    known: set[str] = set()
    listed = []
    with tarfile.open(new, "w") as archive:
        for image in images:
            digests = [_digest(layer) for layer in image.layers]
            for digest, layer in zip(digests, image.layers, strict=True):
                if digest not in known:
                    archive.add(layer, f"{digest}.tar")
                    known.add(digest)
            config = _config(image, digests)
            file = f"{hashlib.sha256(config).hexdigest()}.json"
            add(archive, file, config)
            listed.append({"Config": file, "RepoTags": [image.name], "Layers": [f"{digest}.tar" for digest in digests]})
        add(archive, "manifest.json", json.dumps(listed).encode())
    new.replace(path)


def name_of(path: Path) -> str:
    """The name of the first image in an archive."""
    try:
        with tarfile.open(path) as archive, archive.extractfile("manifest.json") as file:  # type: ignore[union-attr]
            return str(json.load(file)[0]["RepoTags"][0])
    except (OSError, tarfile.TarError, LookupError, TypeError, ValueError):
        raise Misconfigured(
            f"{path} is no archive of a named image. Write one with: podman save -o {path.name} NAME"
        ) from None


def _digest(layer: Path) -> str:
    with layer.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _config(image: Image, digests: Sequence[str]) -> bytes:
    environment = {"PATH": SEARCHED, **image.environment}
    return json.dumps(
        {
            "architecture": _MACHINES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Env": [f"{name}={value}" for name, value in environment.items()], "Cmd": list(image.command)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
            "history": [{"created_by": "isthmus lab"} for _ in digests],
        },
        sort_keys=True,
    ).encode()


def write_base(path: Path) -> None:
    """Write the layer with a shell and the usual small programs."""
    if not BUSYBOX.is_file():
        raise Misconfigured("The lab's image is made of busybox. Install it with: apt install busybox-static")
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    with tarfile.open(path, "w") as layer:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder in ("tmp", "work", "isthmus") else 0o755
            layer.addfile(entry)
        add(layer, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for applet in applets:
            if applet not in ("busybox", "env"):
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                layer.addfile(entry)
        add(layer, "etc/passwd", _ACCOUNTS.encode())
        env = Path("/usr/bin/env").resolve()
        add(layer, "usr/bin/env", env.read_bytes(), 0o755)
        for library in libraries([env]):
            add(layer, str(library).lstrip("/"), library.read_bytes(), 0o755)


def libraries(programs: Sequence[Path]) -> list[Path]:
    """The libraries that programs want, and the loader."""
    said = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    return [Path(found) for found in dict.fromkeys(re.findall(r"(/\S+) \(0x", said))]


def add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Put a file into an archive."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
