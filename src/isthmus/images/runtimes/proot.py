"""PRoot: every system call of the program is looked at and its paths changed. Slow, but it needs no rights at all."""

from __future__ import annotations

from collections.abc import Sequence

from .base import ContainerView


class Proot:
    """proot."""

    name = "proot"
    program = "proot"
    version_words: Sequence[str] = ("proot", "--version")
    trial = "proot true"
    passes_files = True
    remark = "programs that make many system calls are several times slower; the image's files can be written to"
    remedy = "let persons trace their own processes (sysctl kernel.yama.ptrace_scope=1 or 0)"

    def bind(self, source: str, target: str) -> list[str]:
        """A file more."""
        return ["-b", f"{source}:{target}"]

    def prepare(self) -> str:
        """Nothing."""
        return ""

    def finish(self) -> str:
        """Nothing."""
        return ""

    def begin(self, container: ContainerView) -> list[str]:
        """What is bound."""
        found = ["proot", "-b", "/dev", "-b", "/proc", "-b", "/sys"]
        for bind in container.binds:
            found += self.bind(bind.source, bind.target)
        return found

    def end(self, container: ContainerView) -> list[str]:
        """The root."""
        return ["-r", container.root]
