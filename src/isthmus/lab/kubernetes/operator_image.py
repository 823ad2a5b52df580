"""An image of the control plane that calls this: its Python, the packages it needs, and Isthmus as it is here.

On top of the lab's own image come three layers: Python with its standard library, the packages that Isthmus requires
(and what those require), and Isthmus. Libraries of the system that any of them want lie in one folder, which
`LD_LIBRARY_PATH` names. The times of files are kept: Python then takes what it has compiled already.

It is for labs. Real ones are built from `deploy/Containerfile`.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import isthmus

from . import images
from .images import Image

NAME = f"localhost/isthmus:{isthmus.__version__}"
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_STDLIB, _PACKAGES, _NATIVE = f"usr/local/lib/{_PYTHON}", "opt/isthmus", "usr/local/lib/native"
_LEFT_OUT = frozenset(
    {"test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages", "dist-packages"}
)
_CACHED = f".cpython-{sys.version_info.major}{sys.version_info.minor}.pyc"
_COMMAND = """\
#!/usr/local/bin/python3
import sys
from isthmus.cli import main
sys.exit(main())
"""


def make(path: Path) -> None:
    """Write the archive of the image."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        layers = {name: Path(folder) / name for name in ("base", "python", "packages", "isthmus")}
        images.write_base(layers["base"])
        packages = dict(_package_files("isthmus"))
        _write_python(layers["python"], [file for file in packages.values() if ".so" in file.name])
        _write(layers["packages"], packages.items())
        with tarfile.open(layers["isthmus"], "w") as layer:
            images.add(layer, "usr/local/bin/isthmus", _COMMAND.encode(), 0o755)
            _add_all(layer, _tree(Path(isthmus.__file__).parent, f"{_PACKAGES}/isthmus"))
        environment = {"PYTHONPATH": f"/{_PACKAGES}", "LD_LIBRARY_PATH": f"/{_NATIVE}", "PYTHONUNBUFFERED": "1"}
        images.write(path, [Image(NAME, list(layers.values()), ["isthmus"], environment)])


def _write_python(path: Path, extensions: list[Path]) -> None:
    program = Path(sys.executable).resolve()
    folders = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    found = {name: file for folder in folders for name, file in _tree(folder, _STDLIB, _LEFT_OUT)}
    wanting = [program, *(file for file in found.values() if ".so" in file.name), *extensions]
    with tarfile.open(path, "w") as layer:
        _add_all(layer, [(f"usr/local/bin/{_PYTHON}", program)])
        link = tarfile.TarInfo("usr/local/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, _PYTHON
        layer.addfile(link)
        _add_all(layer, found.items())
        for library in images.libraries(wanting):
            if library in extensions or any(library.samefile(own) for own in extensions if own.name == library.name):
                continue  # brought along by a package, which finds it itself
            loader = library.name.startswith("ld-linux")
            _add_all(layer, [(str(library).lstrip("/") if loader else f"{_NATIVE}/{library.name}", library.resolve())])


def _package_files(root: str) -> Iterator[tuple[str, Path]]:
    """The files of every package that a package requires, by their place in the image."""
    waiting, seen = [(root, frozenset[str]())], {root}
    while waiting:
        name, extras = waiting.pop()
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another system, or another Python
            continue
        if name != root:
            for file in found.files or ():
                if ".." not in file.parts and _is_wanted(Path(file)):
                    yield f"{_PACKAGES}/{file}", Path(str(file.locate()))
        for needed, more in _requirements(found.requires or (), extras):
            if needed not in seen:
                seen.add(needed)
                waiting.append((needed, more))


def _requirements(texts: Iterable[str], extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for text in texts:
        head, _, marker = text.partition(";")
        asked = re.search(r"extra\s*==\s*[\"']([^\"']+)", marker)
        if asked is not None and asked[1] not in extras:
            continue
        if match := re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^]]*)\])?", head):
            yield match[1], frozenset(word.strip() for word in (match[2] or "").split(","))


def _is_wanted(path: Path) -> bool:
    """No tests, no archives to link with, and nothing that was compiled for another Python."""
    unused = "tests" in path.parts or path.suffix == ".a"
    return not unused and (path.suffix != ".pyc" or path.name.endswith(_CACHED))


def _tree(folder: Path, place: str, left_out: frozenset[str] = frozenset()) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder)
        if file.is_file() and not left_out & set(inside.parts) and _is_wanted(inside):
            yield f"{place}/{inside}", file


def _write(path: Path, files: Iterable[tuple[str, Path]]) -> None:
    with tarfile.open(path, "w") as layer:
        _add_all(layer, files)


def _add_all(layer: tarfile.TarFile, files: Iterable[tuple[str, Path]]) -> None:
    for name, file in files:
        if file.is_file():
            layer.add(file.resolve(), name, recursive=False, filter=_owned)


def _owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's, and for everybody to read: the pod is nobody in particular."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry
