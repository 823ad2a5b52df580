"""Named places where a test may kill the process, as `kill -9` would.

`reach("submit:prepared")` does nothing unless the environment variable `ISTHMUS_CRASH_AT` holds that name. The
tests kill a program at every such place and then show that nothing was lost and nothing was done twice.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "ISTHMUS_CRASH_AT"
_asked_for = os.environ.get(VARIABLE)


def reach(point: str) -> None:
    """Die here, without any clean-up, if this is the point that was asked for."""
    if _asked_for == point:
        os.kill(os.getpid(), signal.SIGKILL)
