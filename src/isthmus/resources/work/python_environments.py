"""The Python environment that a job runs in: which packages, on which Python. A site makes it once and keeps it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from isthmus.resources.frame.meta import Model

MOST_REQUIREMENTS = 1000
_MOST_LETTERS = 65_536
_OPTIONS = frozenset(
    {
        "--extra-index-url", "--find-links", "--index-url", "--no-binary", "--only-binary", "--pre", "--prefer-binary",
        "--require-hashes",
    }
)  # fmt: skip
_OPTION = re.compile(r"--?[A-Za-z-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(?:$|[\[<>=!~;@ (\\])")
_ACCOUNT_IN_URL = re.compile(r"://[^/\s]*@")
_LOCAL_FILE = re.compile(r"(?:^|[\s=])(?:file:|\.{0,2}/)", re.IGNORECASE)

Requirement = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4096)]


def check_requirement(line: str) -> str:
    """One line of a requirements.txt that means the same everywhere; raises ValueError."""
    if not line.isprintable():
        raise ValueError(f"{line[:80]!r} has characters that cannot be printed")
    shown = f"{line[:80]!r}"
    if _ACCOUNT_IN_URL.search(line):
        # Not shown: it is an account.
        raise ValueError("has a URL with an account in it; whoever sees the job would see it. Use a site's own mirror")
    if _LOCAL_FILE.search(line):
        raise ValueError(
            f"{shown} names a file, and the environment is kept for jobs that do not have it; name a package"
        )
    if line.startswith("-"):
        option = _OPTION.match(line)
        if option is None or option[0] not in _OPTIONS:
            known = ", ".join(sorted(_OPTIONS))
            raise ValueError(f"{shown} is no option that an environment can have; it may have {known}")
    elif not _NAME.match(line):
        raise ValueError(f"{shown} does not begin with the name of a package, such as numpy==2.1")
    return line


class PythonEnvironment(Model):
    """Packages that the site installs, once, for this and later jobs of the same person or tenant."""

    requirements: list[Requirement] = Field(
        min_length=1, max_length=MOST_REQUIREMENTS, description="lines as in requirements.txt: numpy==2.1"
    )
    version: str | None = Field(
        default=None, pattern=r"^3\.[0-9]{1,2}$", description="of Python, such as 3.12; none means the site's"
    )

    @field_validator("requirements")
    @classmethod
    def _usable(cls, lines: list[str]) -> list[str]:
        if sum(len(line) for line in lines) > _MOST_LETTERS:
            raise ValueError(f"are longer than {_MOST_LETTERS} characters; use a container image")
        return [check_requirement(line) for line in lines]


class SitePackages(Model):
    """Where a site's environments get Python packages from, beside or in place of the public index."""

    index: str | None = Field(
        default=None,
        max_length=1024,
        pattern=r"^https?://[^\s@]+$",
        description="URL of a package index that the site reaches, such as a mirror",
    )
    wheels: str | None = Field(
        default=None,
        max_length=1024,
        pattern=r"^/[^\s:]*$",
        description="folder of wheels, where jobs of the site see it; without index nothing else is asked",
    )
