"""bubblewrap over an unpacked root: a few mounts in a namespace of the person's own."""

from __future__ import annotations

from collections.abc import Sequence

from .base import ContainerView

USER_NAMESPACES = (
    "let persons make user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0)"
)


class Bubblewrap:
    """bwrap."""

    name = "bubblewrap"
    program = "bwrap"
    version_words: Sequence[str] = ("bwrap", "--version")
    trial = "bwrap --ro-bind / / true"
    passes_files = True
    remark = "a signal to all processes of a task ends the container before its program"
    remedy = USER_NAMESPACES

    def bind(self, source: str, target: str) -> list[str]:
        """A file more."""
        return ["--ro-bind", source, target]

    def prepare(self) -> str:
        """Nothing."""
        return ""

    def finish(self) -> str:
        """Nothing."""
        return ""

    def begin(self, container: ContainerView) -> list[str]:
        """The root, the machine's devices and processes, and what is bound."""
        found = ["bwrap", "--ro-bind", container.root, "/"]
        found += ["--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc", "--bind", "/sys", "/sys"]
        for bind in container.binds:
            found += ["--bind" if bind.writable else "--ro-bind", bind.source, bind.target]
        return found

    def end(self, container: ContainerView) -> list[str]:
        """Nothing more."""
        del container
        return ["--"]
