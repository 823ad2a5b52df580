"""Charliecloud: `ch-run` becomes the program itself, in a namespace of the person's own."""

from __future__ import annotations

from collections.abc import Sequence

from .base import ContainerView
from .bubblewrap import USER_NAMESPACES


class Charliecloud:
    """ch-run. It binds /dev, /proc and /sys by itself."""

    name = "charliecloud"
    program = "ch-run"
    version_words: Sequence[str] = ("ch-run", "--version")
    trial = "unshare --user --mount true"
    passes_files = True
    remark = ""
    remedy = USER_NAMESPACES

    def bind(self, source: str, target: str) -> list[str]:
        """A file more."""
        return [f"--bind={source}:{target}"]

    def prepare(self) -> str:
        """It wants to know whose container it is."""
        return "export USER=${USER:-$(id -un)}"

    def finish(self) -> str:
        """Nothing."""
        return ""

    def begin(self, container: ContainerView) -> list[str]:
        """What is bound. It wants USER, and would put the machine's /tmp in place of what is bound there."""
        found = ["ch-run", "--no-passwd", "--private-tmp"]
        for bind in container.binds:
            found += self.bind(bind.source, bind.target)
        return found

    def end(self, container: ContainerView) -> list[str]:
        """The root."""
        return [container.root, "--"]
