"""Places where a test may kill the process, as `kill -9` would: named ones, and the one after every effect.

`reach("submit:before")` is a named place. `step(os.link, new, final)` does what it is given, and is a place too: one
called after the function it stands in and the effect, such as `SharedFiles._create_record:link`. So the places between
effects follow from the code, and nobody keeps a list of them. Writes of reconcilers have theirs in `store/points.py`.

With `ISTHMUS_CRASH_AT=NAME` the process dies when it reaches the place for the first time, with `NAME#3` at the third
time; several are separated by commas. With `ISTHMUS_CRASH_SIGNAL=SIGSTOP` beside it, it is only stopped there. With
`ISTHMUS_CRASH_RECORD=FILE` each place that is reached is written to the file, one in a line, and whoever is started
with the same file goes on counting: a test records them once and then kills at every line, also at several in the life
of one server. Without these variables a place costs one comparison.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

VARIABLE = "ISTHMUS_CRASH_AT"
RECORD = "ISTHMUS_CRASH_RECORD"
SIGNAL = "ISTHMUS_CRASH_SIGNAL"
_asked_for, _record = frozenset(filter(None, os.environ.get(VARIABLE, "").split(","))), os.environ.get(RECORD)
_signal = signal.Signals[os.environ.get(SIGNAL, "SIGKILL")]
_watched = bool(_asked_for or _record)
_lock = threading.Lock()
_reached = Counter[str]()
if _record and Path(_record).exists():
    _reached.update(line.partition("#")[0] for line in Path(_record).read_text(encoding="ascii").split())


def watched() -> bool:
    """Whether a test looks at the places."""
    return _watched


def reach(point: str) -> None:
    """Die here, without any clean-up, if this is the point that was asked for."""
    if _watched:
        _reach(point)


def step(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do something that others can see; there is a point after it."""
    done = call(*args, **kwargs)
    if _watched:
        _reach(_name(call, sys._getframe(1).f_code.co_qualname))
    return done


async def step_async(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for what has to be awaited."""
    done = await call(*args, **kwargs)
    if _watched:
        frame = sys._getframe(0).f_back  # whoever awaits this: next on the stack while it runs
        _reach(_name(call, frame.f_code.co_qualname if frame else ""))
    return done


def _name(call: Callable[..., Any], function: str) -> str:
    return f"{function.replace('.<locals>', '')}:{getattr(call, '__name__', type(call).__name__).strip('_')}"


def _reach(point: str) -> None:
    with _lock:
        _reached[point] += 1
        numbered = f"{point}#{_reached[point]}"
        if _record:
            with open(_record, "a", encoding="ascii") as file:  # noqa: PTH123 - no more than this is needed
                file.write(f"{numbered}\n")
        if numbered in _asked_for or (point in _asked_for and _reached[point] == 1):
            signal.pthread_kill(threading.get_ident(), _signal)  # sent to the process, it might take one step more
