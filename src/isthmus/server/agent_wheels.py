"""What machines that join are given: this Isthmus as a wheel, with what its agent needs, packed from what is installed.

A wheel is an archive of a package's files. Those of Isthmus and of the packages that its agent imports are packed
again as they lie here, so that a machine of the same sort needs no access to the internet. For another architecture or
another Python, packages with compiled parts come from that machine's own index.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import sysconfig
import threading
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import isthmus
from isthmus.engines.agent.offers import AgentPackage, AgentPackages

REQUIRED = frozenset(
    {
        "cryptography",
        "httpx",
        "orjson",
        "prometheus-client",
        "pydantic",
        "pyyaml",
        "rich",
        "sniffio",
        "typer",
        "websockets",
    }
)
"""Of what Isthmus depends on, what its agent imports."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEFT_OUT = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "RECORD.jws", "uv_cache.json")
_EPOCH = (1980, 1, 1, 0, 0, 0)


class PackedWheels:
    """Packs when it is first asked, into a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._packed: AgentPackages | None = None

    def packages(self) -> AgentPackages:
        """All of them. For a thread: the first time it takes seconds."""
        with self._lock:
            if self._packed is None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder.mkdir(parents=True)
                self._packed = self._pack()
            return self._packed

    def _pack(self) -> AgentPackages:
        own = distribution("isthmus")
        main = _write(self._folder, own, _own_files(own), "py3-none-any")
        wanted = [one for one in own.requires or () if _normal(one) in REQUIRED and ";" not in one]
        found = _closure(wanted)
        others = [_write(self._folder, one, _installed_files(one), _tag(one)) for one in found.values()]
        return AgentPackages(
            isthmus.__version__, main.digest[:12], main, tuple(others), tuple(wanted), sysconfig.get_platform(),
            sysconfig.get_python_version(),
        )  # fmt: skip


def _closure(requirements: list[str]) -> dict[str, Distribution]:
    """The distributions that are needed, by name; extras are not."""
    found: dict[str, Distribution] = {}
    waiting = list(requirements)
    while waiting:
        said = waiting.pop()
        name = _normal(said)
        if name in found or "extra ==" in said:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # its condition does not hold here
        waiting += found[name].requires or ()
    return found


def _normal(requirement: str) -> str:
    match = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def _tag(dist: Distribution) -> str:
    said = re.findall(r"^Tag: *(\S+)", dist.read_text("WHEEL") or "", re.MULTILINE)
    return said[0] if said else "py3-none-any"


Files = Iterator[tuple[str, bytes]]


def _installed_files(dist: Distribution) -> Files:
    for file in dist.files or ():
        if file.parts[0] != ".." and "__pycache__" not in file.parts and file.name not in _LEFT_OUT:
            path = Path(str(file.locate()))
            if path.is_file():
                yield file.as_posix(), path.read_bytes()


def _own_files(dist: Distribution) -> Files:
    """Isthmus as it runs, also where it is installed as a link to its sources."""
    (top,) = isthmus.__path__
    for path in sorted(Path(top).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"isthmus/{path.relative_to(top).as_posix()}", path.read_bytes()
    info = f"isthmus-{isthmus.__version__}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        yield f"{info}/{name}", (dist.read_text(name) or "").encode()
    yield f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: isthmus\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _write(folder: Path, dist: Distribution, files: Files, tag: str) -> AgentPackage:
    """One wheel. The same files make the same wheel, byte for byte."""
    name = re.sub(r"[-_.]+", "_", dist.metadata["Name"])
    version = isthmus.__version__ if name == "isthmus" else dist.version
    path = folder / f"{name}-{version}-{tag}.whl"
    record, info = [], ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for inside, content in sorted(files):
            archive.writestr(_entry(inside), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{inside},sha256={digest},{len(content)}")
            if inside.endswith(".dist-info/METADATA"):
                info = inside.partition("/")[0]
        listed = f"{info}/RECORD"
        archive.writestr(_entry(listed), "\n".join([*record, f"{listed},,", ""]))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return AgentPackage(path, digest, path.stat().st_size)


def _entry(inside: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(inside, _EPOCH)
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    return entry
