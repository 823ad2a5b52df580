"""An image on its way to a site: the program that unpacks it there (`roots`), what it shall do, and the layers.

All of it is one stream, so that it can go over any connection that runs a command: one line of JSON for a shell's
Python, with the texts of the modules and the plan, and then the layers. Nothing needs to be installed at the site but
Python 3.9, and nothing but the image is left there.
"""

from __future__ import annotations

import errno
import io
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from isthmus.errors import IsthmusError, SiteUnavailable

from .archives import PackedImage
from .layers import Limits
from .manifests import MOST_VARIABLES, bad, parse_environment
from .unpacking import BAD

MOST_ANSWER = 4 * 2**20
_MODULES = ("tar_streams", "zstd_streams", "layers", "unpacking", "roots")
"""What is sent, each behind what it imports."""
# Fixed; what varies comes on standard input. The modules are those of a package that is nowhere on disk.
_BOOT = """\
import json, sys, types
head = json.loads(sys.stdin.buffer.readline())
sys.modules["sent"] = types.ModuleType("sent"); sys.modules["sent"].__path__ = []
for name, text in head["modules"]:
    module = sys.modules["sent." + name] = types.ModuleType("sent." + name); module.__package__ = "sent"
    exec(compile(text, name, "exec"), module.__dict__)
sys.exit(sys.modules["sent.roots"].main())
"""
PYTHONS = ("python3", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9")
NO_PYTHON = 9
"""How `COMMAND` ends where no Python is new enough."""


@dataclass(frozen=True, slots=True)
class KeptRoot:
    """An image that is unpacked at a site."""

    digest: str
    root: str
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RootPlan:
    """What is to be unpacked, and where."""

    folder: str
    """The person's own."""
    image: PackedImage
    name: str
    max_bytes: int
    in_use: Sequence[str] = ()
    """Digests that must stay."""
    become: tuple[int, int, tuple[int, ...]] | None = None
    """Uid, gid and groups of the person, if whoever runs the program is root."""

    def line(self) -> bytes:
        """As it is sent."""
        layers = [{"size": x.piece.size, "digest": x.digest, "diff_id": x.diff_id} for x in self.image.layers]
        plan = {
            "folder": self.folder,
            "digest": folder_name(self.image.digest),
            "layers": layers,
            "limits": asdict(Limits()),
            "maxBytes": self.max_bytes,
            "inUse": [folder_name(digest) for digest in self.in_use],
            "record": {"digest": self.image.digest, "name": self.name, "env": self.image.config.env},
            "become": self.become,
        }
        return json.dumps(plan).encode() + b"\n"


def folder_name(digest: str) -> str:
    """What the folder of an image is called."""
    return digest.removeprefix("sha256:")


def command() -> str:
    """A shell line that runs the program, with the first Python that is new enough."""
    names = " ".join(PYTHONS)
    return (
        f"for python in {names}; do "
        'if "$python" -c "import sys; sys.exit(sys.version_info < (3, 9))" 2>/dev/null; then '
        f'exec "$python" -I -S -c {shlex.quote(_BOOT)}; fi; done; exit {NO_PYTHON}'
    )


def boot() -> bytes:
    """The line in front of the plan, for `command`."""
    texts = [(name, Path(__file__).with_name(f"{name}.py").read_text()) for name in _MODULES]
    return json.dumps({"modules": texts}).encode() + b"\n"


class ImageStream(io.RawIOBase):
    """Some lines, and the layers of an image behind them, as one file."""

    def __init__(self, head: bytes, image: PackedImage) -> None:
        self._parts = self._pieces(head, image)
        self._left = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Some of it; empty at the end."""
        if not self._left:
            self._left = next(self._parts, b"")
        part, self._left = (self._left, b"") if size < 0 else (self._left[:size], self._left[size:])
        return part

    @staticmethod
    def _pieces(head: bytes, image: PackedImage) -> Iterator[bytes]:
        if head:
            yield head
        for layer in image.layers:
            piece, left = layer.piece, layer.piece.size
            with piece.path.open("rb") as file:
                file.seek(piece.offset)
                while left and (part := file.read(min(left, 1 << 20))):
                    left -= len(part)
                    yield part


def answered(code: int, out: str, err: str, plan: RootPlan) -> KeptRoot:
    """What the program said; raises EngineRefused for an image that cannot be used, else SiteUnavailable."""
    if code == 0:
        found = parse_record(out[:MOST_ANSWER])
        if found is not None and found[0] == plan.image.digest:
            return KeptRoot(found[0], f"{plan.folder}/roots/{folder_name(found[0])}/root", found[1])
    raise _failed(code, out, err, plan)


def parse_record(text: str) -> tuple[str, dict[str, str]] | None:
    """Digest and environment of an image that is there. The person can write what they like into it."""
    try:
        record: Any = json.loads(text)
        digest, env = record["digest"], record["env"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(digest, str) or not isinstance(env, dict):
        return None
    return digest, parse_environment([f"{name}={value}" for name, value in list(env.items())[:MOST_VARIABLES]])


def _failed(code: int, out: str, err: str, plan: RootPlan) -> IsthmusError:
    try:
        said = json.loads(out)
        message, number = str(said["message"])[:500], said.get("errno")
    except (ValueError, KeyError, TypeError, RecursionError):
        last = err.strip().splitlines()[-1:]
        message, number = f"unpacking ended with {code}{': ' + last[0][:200] if last else ''}", None
    if code == BAD:
        return bad(f"{plan.name}: {message}")
    if code == NO_PYTHON:
        message = "the login node has no Python 3.9 or later, which unpacks images; install one"
    if number in (errno.ENOSPC, errno.EDQUOT):
        message = f"there is no space left in {plan.folder}; remove what is not needed there"
    return SiteUnavailable(
        f"The image {plan.name} could not be unpacked: {message.rstrip('.')}. It is tried again later."
    )
