"""Estimates: how long a job is expected to take on each number of devices, how sure that is, and how it is known.

Past runs of the same work are believed first (the median of the recent ones), then the manifest. What neither says
is worked out from other numbers of the same class: run time is a part that does not shrink with more devices and one
that does (Amdahl), fitted to what is known. The further away that is, the less sure. If nothing is known at all, an
hour is assumed and said to be an assumption; if some classes are known, the others are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from statistics import median

from isthmus.resources.work.plans import ProfileSource

from .workloads import Key

ASSUMED_SECONDS = 3600.0
_ASSUMED_SPREAD = 1.0
_STATED_SPREAD = 0.1
_FEW = {1: 0.25, 2: 0.15}
"""Spread of one or two past runs, which say little about their scatter."""
_LEAST_SPREAD = 0.03
_SERIAL = 0.1
"""Share that does not shrink with more devices, if only one number of devices is known."""
_GUESS, _FIT, _PER_DOUBLING = 0.25, 0.1, 0.1
_APART = 2.0
"""Past runs that differ from the manifest by more than this factor are worth a remark."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Expected seconds of the whole job; `spread` is the share by which it may well take longer."""

    seconds: float
    spread: float
    source: ProfileSource


@dataclass(frozen=True, slots=True)
class Estimates:
    """What is known of a workload."""

    by_key: Mapping[Key, Estimate]
    remarks: tuple[str, ...] = ()


def estimate(
    wanted: Iterable[Key], stated: Mapping[Key, float], past: Mapping[Key, Sequence[float]] | None = None
) -> Estimates:
    """An estimate for each key that is wanted, as far as anything is known."""
    wanted = list(dict.fromkeys(wanted))
    known = {key: Estimate(seconds, _STATED_SPREAD, ProfileSource.MANIFEST) for key, seconds in stated.items()}
    remarks = []
    for key, runs in (past or {}).items():
        if not runs:
            continue
        known[key] = measured = _measured(runs)
        if key in stated and not 1 / _APART <= measured.seconds / stated[key] <= _APART:
            remarks.append(
                f"the profile says {stated[key]:.0f} s on {key[1]} {key[0]}, but past runs took "
                f"{measured.seconds:.0f} s; past runs are believed"
            )
    if not known:
        assumed = Estimate(ASSUMED_SECONDS, _ASSUMED_SPREAD, ProfileSource.ASSUMED)
        remark = "no profile and no past run: an hour is assumed; give spec.profile, or let the work run once"
        return Estimates(dict.fromkeys(wanted, assumed), (remark,))
    found: dict[Key, Estimate] = {}
    for key in wanted:
        if (one := known.get(key) or _modelled(key, known)) is not None:
            found[key] = one
    unknown = sorted({name for name, _ in wanted} - {name for name, _ in known})
    remarks += [f"{name}: there is neither a profile nor a past run for it" for name in unknown]
    return Estimates(found, tuple(remarks))


def _measured(runs: Sequence[float]) -> Estimate:
    middle = median(runs)
    spread = _FEW.get(len(runs))
    if spread is None:
        scatter = sum(abs(run - middle) for run in runs) / len(runs)
        spread = max(_LEAST_SPREAD, 1.5 * scatter / middle if middle else 0.0)
    return Estimate(max(middle, 0.001), min(spread, 2.0), ProfileSource.PAST_RUNS)


def _modelled(key: Key, known: Mapping[Key, Estimate]) -> Estimate | None:
    name, count = key
    points = sorted((n, one.seconds) for (other, n), one in known.items() if other == name)
    if not points:
        return None
    if len(points) == 1:
        (n, seconds) = points[0]
        fixed, shared, residual = _SERIAL * seconds, (1 - _SERIAL) * seconds * n, _GUESS
    else:
        fixed, shared, residual = _amdahl(points)
        residual += _FIT
    nearest = min(abs(log2(count / n)) for n, _ in points)
    expected = fixed + shared / count
    return Estimate(max(expected, 0.001), min(residual + _PER_DOUBLING * nearest, 2.0), ProfileSource.MODEL)


def _amdahl(points: Sequence[tuple[int, float]]) -> tuple[float, float, float]:
    """The fixed part, the part that is shared among devices, and the mean relative error of the fit."""
    size = len(points)
    mean_x = sum(1 / n for n, _ in points) / size
    mean_y = sum(seconds for _, seconds in points) / size
    below = sum((1 / n - mean_x) ** 2 for n, _ in points)
    shared = sum((1 / n - mean_x) * (seconds - mean_y) for n, seconds in points) / below
    shared = max(shared, 0.0)
    fixed = mean_y - shared * mean_x
    if fixed < 0:  # shrinks faster than the number of devices grows; nobody can count on that
        fixed = 0.0
        shared = sum(seconds / n for n, seconds in points) / sum(1 / n**2 for n, _ in points)
    error = sum(abs(fixed + shared / n - seconds) / seconds for n, seconds in points) / size
    return fixed, shared, error
