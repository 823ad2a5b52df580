"""Which changes a module makes without a crash point after them, and which of all points a test takes.

Nothing may change without a point after it: what changes things is only ever handed to `step` (`_kit/crashpoints`).
"""

from __future__ import annotations

import ast
import random
import zlib
from collections.abc import Iterator

ON_DISK = frozenset({
    "link", "symlink", "unlink", "rename", "replace", "mkdir", "makedirs", "rmdir", "removedirs", "chmod", "fchmod",
    "chown", "fchown", "lchown", "write", "pwrite", "truncate", "ftruncate", "utime", "mknod", "mkfifo", "write_bytes",
    "write_text", "touch", "hardlink_to", "symlink_to", "copyfile", "copy", "copy2", "copytree", "rmtree", "move",
    "open",
})  # fmt: skip


def bare_effects(text: str, effects: frozenset[str], *, of: frozenset[str] | None = None) -> Iterator[str]:
    """Calls of something that changes things, made directly; `of` names the objects whose methods are meant."""
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in effects):
            continue
        owner = ast.unparse(node.func.value)
        if of is not None and owner not in of:
            continue
        if node.func.attr == "open" and not _writes(node):
            continue
        yield f"{node.lineno}: {ast.unparse(node)}"


def _writes(call: ast.Call) -> bool:
    """Whether a file is opened to be changed: the flags or the mode are written out in the call."""
    words = " ".join(ast.unparse(word) for word in call.args[1:2])
    return any(sign in words for sign in ("_NEW", "O_CREAT", "'w", "'x", "'a", "_append"))


def choose(points: list[str], asked: str, chance: random.Random) -> list[str]:
    """Those that were asked for: all, one of so many parts, the named ones, or so many by chance.

    By chance each effect is as likely as any other. To which part a point belongs does not depend on the others.
    """
    part, of_parts, parts = asked.partition("/")
    if asked == "all":
        return points
    if of_parts:
        return [point for point in points if zlib.crc32(point.encode()) % int(parts) == int(part) - 1]
    if not asked.isdigit():
        return asked.split(",")
    effects: dict[str, list[str]] = {}
    for point in points:
        effects.setdefault(point.partition("#")[0], []).append(point)
    return [chance.choice(effects[name]) for name in chance.sample(sorted(effects), int(asked))]
