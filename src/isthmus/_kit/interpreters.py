"""How the interpreter was built. Pure: given `sysconfig.get_config_vars()`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PYENV = re.compile(r"'--prefix=[^']*/versions/\d[^/']*'")


def is_optimised(variables: Mapping[str, Any]) -> bool | None:
    """Whether it was built with `--enable-optimizations`, or to the same effect; None where nothing says.

    Builders that call `make profile-opt` themselves leave no trace of it (Debian's is one of them), so that an option
    which is not there says nothing. pyenv calls plain `make`: there it does. A debug build is never fast.
    """
    options = str(variables.get("CONFIG_ARGS") or "")
    if variables.get("Py_DEBUG"):
        return False
    if "--enable-optimizations" in options:
        return True
    return False if _PYENV.search(options) else None
