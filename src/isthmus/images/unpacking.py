"""Unpacking an image, as a process of its own: it reads a plan from standard input and answers on standard output.

Of its own, because unpacking takes minutes of processor time that the server needs for others, because it can be
ended at any moment, and because whatever a hostile image may break is not the server. Standard library only, so that
the same lines can be run where Isthmus is not installed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from .layers import BadLayer, Limits, RootFolder, TooManyBytes

BAD, FAILED = 3, 4
"""Exit codes: the image is refused; this machine could not do it. The answer says why."""
MOUNTED = (("etc", "resolv.conf"), ("etc", "hosts"))
"""Files of the machine that are mounted over those of the image."""


def unpack(plan: dict[str, Any]) -> dict[str, Any]:
    """Unpack the layers into an empty folder: what came of it. Raises BadLayer and OSError."""
    root = RootFolder(plan["root"], Limits(**plan["limits"]))
    with contextlib.ExitStack() as files:
        apply_layers(root, [(layer, files.enter_context(_opened(layer))) for layer in plan["layers"]])
    shell = root.has_program("bin/sh")
    for folder, name in MOUNTED:
        root.put_placeholder(folder, name)
    sync(plan["root"])
    return {"files": root.files, "bytes": root.bytes, "dropped": root.dropped, "shell": shell}


def apply_layers(root: RootFolder, layers: Sequence[tuple[Mapping[str, Any], BinaryIO]]) -> None:
    """Unpack layers on top of each other, each read from where its file stands. Raises BadLayer and OSError."""
    for number, (layer, file) in enumerate(layers, 1):
        where = f"layer {number} of {len(layers)}"
        try:
            kept, inside = root.apply(file, layer["size"])
        except BadLayer as error:
            raise type(error)(f"{where} cannot be used: {error}") from error
        if layer["digest"] not in (None, kept) or layer["diff_id"] != inside:
            raise BadLayer(f"{where} is not what the image says: its digest is another. Fetch or build the image again")


def _opened(layer: Mapping[str, Any]) -> BinaryIO:
    file = open(layer["path"], "rb")  # noqa: PTH123, SIM115 - whoever asked closes it
    file.seek(layer["offset"])
    return file


def sync(folder: str) -> None:
    """Have all of it on disk: once the folder has its true name, nobody looks into it again."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
    finally:
        os.close(fd)


def main() -> int:
    """Carry out the plan on standard input."""
    os.umask(0o022)
    try:
        answer, code = unpack(json.load(sys.stdin)), 0
    except BadLayer as error:
        answer, code = {"message": str(error), "too_large": isinstance(error, TooManyBytes)}, BAD
    except OSError as error:
        answer, code = {"message": str(error), "errno": error.errno}, FAILED
    json.dump(answer, sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
