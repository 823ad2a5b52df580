"""The contract of a container runtime: words that run a program in an unpacked image, without root.

Every runtime keeps these promises, which `testing/runtimes.py` tries on each that is installed:

- the program sees the image's folders, read-only, and what is bound, as it is bound;
- it runs under the account that started it, and what it writes belongs to that account;
- it has its environment, standard streams, current folder and exit code as without a container;
- it is in the process namespace, network and control groups of whoever started it: its number means the same inside
  and outside, signals reach it, and what is measured and limited outside counts for it.

A root has a folder or file at the place of everything that is bound (`images/roots.py` sees to it), so that no runtime
has to write to it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Bind(NamedTuple):
    """Something of the machine that the program sees."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What a program shall run in."""

    root: str
    """The unpacked image."""
    binds: tuple[Bind, ...] = ()


class Runtime(Protocol):
    """A container runtime."""

    @property
    def name(self) -> str:
        """What settings and messages call it."""
        ...

    @property
    def program(self) -> str:
        """What is looked for on a node."""
        ...

    @property
    def version_words(self) -> Sequence[str]:
        """What makes it print its version."""
        ...

    @property
    def trial(self) -> str:
        """Shell words that succeed where it works; short, and without an image."""
        ...

    @property
    def passes_files(self) -> bool:
        """Whether open files reach the program, as PMI needs them: then tasks of one program find each other."""
        ...

    @property
    def remark(self) -> str:
        """What is different in it from a program without a container; empty: nothing."""
        ...

    @property
    def remedy(self) -> str:
        """What an administrator can do where it does not work."""
        ...

    def bind(self, source: str, target: str) -> list[str]:
        """The words that show one more file, read-only; they come before the root. Either may be a shell's variable."""
        ...

    def prepare(self) -> str:
        """Shell lines before it is started; empty: none."""
        ...

    def finish(self) -> str:
        """A shell line after its end; empty: none."""
        ...

    def begin(self, container: ContainerView) -> list[str]:
        """The words up to where more files may be bound."""
        ...

    def end(self, container: ContainerView) -> list[str]:
        """The words from there on; the program's own follow."""
        ...


def start(runtime: Runtime, container: ContainerView, libraries: Sequence[str] = (), at: str = "/run/libraries") -> str:
    """Shell lines that start the program whose words are "$@", and end with its status; for a shell of their own.

    `libraries` are patterns of files of the machine, found where the lines are run and shown below `at`, where an empty
    file of the name must be (`placeholders` makes it).
    """
    lines = ["cd /", *filter(None, [runtime.prepare()])]
    lines.append(f'set -- {shlex.join(runtime.end(container))} "$@"')
    if libraries:
        more = " ".join(f'"{word}"' for word in runtime.bind("$file", f"{at}/${{file##*/}}"))
        lines.append(f'for file in {" ".join(libraries)}; do [ ! -f "$file" ] || set -- {more} "$@"; done')
    lines.append(f'{shlex.join(runtime.begin(container))} "$@"')
    if runtime.finish():
        lines += ["status=$?", runtime.finish(), "exit $status"]
    return "\n".join(lines)


def placeholders(folder: str, libraries: Sequence[str]) -> str:
    """A shell line that makes an empty file for each library in a folder, over which it can be mounted."""
    found = " ".join(libraries)
    return f'for file in {found}; do [ ! -f "$file" ] || : >>{shlex.quote(folder)}/"${{file##*/}}"; done'
