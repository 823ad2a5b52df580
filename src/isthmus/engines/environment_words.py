"""Runs in a Python environment: the words that make it where the run is, and become the program in it. Pure.

The environment is made by the run itself, as its own user and within its limits: what a package runs when it is
installed is the person's doing like the rest of the job, and what it takes is the job's time. `environment_building`
is the text that does it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PythonSetup:
    """The environment that a run is to have."""

    requirements: tuple[str, ...]
    version: str | None = None
    """Of Python; None: the one that is there."""
    index: str = ""
    """Where packages come from; empty: where the installer looks by itself."""
    wheels: str = ""
    """A folder of wheels at the site; without `index` nothing else is asked."""

    @property
    def digest(self) -> str:
        """The same for the same packages, however they are written down."""
        lines = sorted({" ".join(line.split()) for line in self.requirements})
        return hashlib.sha256(json.dumps([lines, self.version]).encode()).hexdigest()

    def of_site(self, index: str, wheels: str) -> PythonSetup:
        """With what the site says, where nobody has said it before."""
        return self if self.index or self.wheels else replace(self, index=index, wheels=wheels)


# $1 is the text, $2 the plan, $3 where to report; the program follows.
_FIND = """\
text=$1 report=$3
for python in python3 python; do
  command -v "$python" >/dev/null 2>&1 || continue
  "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || continue
  plan=$2
  shift 3
  exec "$python" -I -S -c "$text" "$plan" "$@"
done
why="there is no Python 3 here to make the environment with; choose another site, or an image such as python:3.12"
echo "isthmus: $why" >&2
case $report in
"&3") printf 'failed: %s' "$why" >&3 ;;
*) printf 'failed: %s\\n' "$why" >"$report" ;;
esac
exit 1
"""


def in_environment(
    setup: PythonSetup | None, words: Sequence[str], *, place: str, report: str, max_bytes: int, image: str = ""
) -> list[str]:
    """The words that have the environment below a folder and run the others in it; just those where none is wanted.

    `report` is a file, or `&3` for a descriptor, that gets `missing` where the program is not there and `failed: `
    with the reason where the environment cannot be made; the log has it too.
    """
    if setup is None:
        return list(words)
    plan = {
        "requirements": setup.requirements,
        "version": setup.version,
        "digest": setup.digest,
        "index": setup.index,
        "wheels": setup.wheels,
        "image": image,
        "place": place,
        "maxBytes": max_bytes,
        "report": report,
    }
    return ["/bin/sh", "-c", _FIND, "isthmus", _text(), json.dumps(plan), report, *words]


@cache
def _text() -> str:
    return Path(__file__).with_name("environment_building.py").read_text()
