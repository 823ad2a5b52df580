"""Which runtimes a node has, in which versions, and whether they work there: a short shell text, and what it printed.

The text needs a shell and nothing else. What it printed comes from somebody's job, and is read within bounds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .base import Runtime

_MARK = "isthmus-probe"
_MOST_LINES = 100
_VERSION = re.compile(r"\d+(\.\d+)+[-+~.\w]*")
_WORD = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True, slots=True)
class FoundRuntime:
    """One runtime, as a node has it."""

    name: str
    works: bool
    version: str = ""
    why: str = ""
    """Why it does not work."""


@dataclass(frozen=True, slots=True)
class NodeProbe:
    """What was found on a node."""

    node: str
    machine: str
    """As `uname -m` says it."""
    found: tuple[FoundRuntime, ...] = ()
    """Those that are installed, in the order in which they were asked for."""
    asked: tuple[str, ...] = ()

    @property
    def usable(self) -> tuple[str, ...]:
        """The names of those that work, best first."""
        return tuple(runtime.name for runtime in self.found if runtime.works)


def script(runtimes: Sequence[Runtime]) -> str:
    """The shell text."""
    lines = ['export USER="${USER:-$(id -un)}" HOME="${HOME:-/}"', f'echo "{_MARK} node $(uname -n) $(uname -m)"']
    for runtime in runtimes:
        version = shlex.join(runtime.version_words)
        lines.append(
            f"if command -v {shlex.quote(runtime.program)} >/dev/null 2>&1; then\n"
            f"  said=$({{ {runtime.trial}; }} 2>&1 </dev/null) && works=yes || works=no\n"
            f'  echo "{_MARK} {runtime.name} $works" $({version} 2>&1 </dev/null | tr "\\n\\t" "  " | cut -c1-400)\n'
            f'  [ $works = yes ] || echo "{_MARK} why {runtime.name}" $(printf %s "$said" | tail -n 1 | cut -c1-200)\n'
            "fi"
        )
    return "\n".join(lines) + "\n"


def parse(text: str, runtimes: Sequence[Runtime]) -> NodeProbe | None:
    """What the text printed; None if it is not that."""
    node = machine = ""
    seen: dict[str, FoundRuntime] = {}
    why: dict[str, str] = {}
    names = {runtime.name for runtime in runtimes}
    for line in text.splitlines()[:_MOST_LINES]:
        words = line.split(" ")
        if words[0] != _MARK or len(words) < 3:
            continue
        kind, rest = words[1], words[2:]
        if kind == "node" and len(rest) == 2 and all(map(_WORD.fullmatch, rest)):
            node, machine = rest
        elif kind == "why" and rest[0] in names:
            why[rest[0]] = " ".join(rest[1:])[:200]
        elif kind in names:
            version = _VERSION.search(" ".join(rest[1:])[:400])
            seen[kind] = FoundRuntime(kind, rest[0] == "yes", version.group() if version else "")
    if not node:
        return None
    asked = tuple(runtime.name for runtime in runtimes)
    found = (seen[name] for name in asked if name in seen)
    whole = (r if r.works else FoundRuntime(r.name, False, r.version, why.get(r.name, "")) for r in found)
    return NodeProbe(node, machine, tuple(whole), asked)


def describe(probe: NodeProbe, runtimes: Mapping[str, Runtime]) -> dict[str, str]:
    """What people read: what runs images, what else is there, and what would make it better."""
    works = [runtime for runtime in probe.found if runtime.works]
    broken = [runtime for runtime in probe.found if not runtime.works]
    shown: dict[str, str] = {}
    if works:
        best = runtimes[works[0].name]
        shown["images"] = f"{best.name} {works[0].version}".strip() + f" (seen on {probe.node}, {probe.machine})"
        if best.remark:
            shown["images-differ"] = best.remark
        if not best.passes_files:
            shown["images-mpi"] = f"none: {best.name} passes no open files on, which PMI needs"
        if others := ", ".join(f"{runtime.name} {runtime.version}".strip() for runtime in works[1:]):
            shown["images-else"] = others
    else:
        shown["images"] = f"none: {no_runtime(probe)}"
    better = [f"{runtime.name}: {runtimes[runtime.name].remedy} ({runtime.why or 'it failed'})" for runtime in broken]
    if better:
        shown["images-better"] = "; ".join(better)
    elif not works:
        shown["images-better"] = f"install one of {', '.join(probe.asked)} on the nodes"
    return shown


def no_runtime(probe: NodeProbe) -> str:
    """Why nothing can be run there."""
    if probe.found:
        tried = "; ".join(f"{runtime.name} fails: {runtime.why or 'no reason given'}" for runtime in probe.found)
        return f"on {probe.node} {tried}"
    return f"{probe.node} has none of {', '.join(probe.asked)}"
