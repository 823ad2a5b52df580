"""Field types that several kinds share: durations, amounts and names, checked at the border and kept as written."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from isthmus._kit.durations import parse_duration
from isthmus._kit.quantities import parse_bytes, parse_cpus


class AdminOnly:
    """The mark of a field that only administrators see."""

    __slots__ = ()


ADMIN_ONLY = AdminOnly()


def _duration(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"{value!r} has no unit; write {value}s for seconds or {value}m for minutes")
    if isinstance(value, str) and parse_duration(value) > 10 * 366 * 86400:
        raise ValueError(f"{value!r} is longer than ten years")
    return value


def _cpus(value: Any) -> Any:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        if not 0 < parse_cpus(value) <= 10**9:
            raise ValueError("must be more than 0 and at most a million")
        return str(value).strip()
    return value


def _memory(value: Any) -> Any:
    if isinstance(value, str | int) and not isinstance(value, bool):
        if not 4 * 2**20 <= parse_bytes(value) <= 2**60:
            raise ValueError(f"must be at least 4Mi and at most 1024Pi; did you mean {value}Mi or {value}Gi?")
        return str(value).strip()
    return value


# What the parsers take, for readers of schemas, which cannot run them.
_DURATION = (
    r"^\s*(([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w))+|[0-9]+:[0-5]?[0-9]:[0-5]?[0-9]|[0-9]+-[0-9]+:[0-5]?[0-9](:[0-5]?[0-9])?"
    r"|[Pp]([0-9]+[Ww])?([0-9]+[Dd])?([Tt]([0-9]+[Hh])?([0-9]+[Mm])?([0-9]+(\.[0-9]+)?[Ss])?)?)\s*$"
)
_AMOUNT = r"^\s*([0-9]+(\.[0-9]*)?|\.[0-9]+)\s*"
_CPUS = _AMOUNT + r"m?\s*$"
_MEMORY = _AMOUNT + r"(B|k|K|M|G|T|P|Ki|Mi|Gi|Ti|Pi|kB|KB|MB|GB|TB)?\s*$"


def _amount(pattern: str) -> dict[str, Any]:
    return {"x-kubernetes-int-or-string": True, "pattern": pattern}


MAX_PATH = 4096


def check_path(path: str) -> str:
    """A relative path that stays inside its folder; raises ValueError."""
    parts = path.split("/")
    if not path or len(path) > MAX_PATH or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{path[:200]!r} is not a path inside a folder")
    return path


MAX_PATTERN_PARTS = 128
"""Folders in a pattern: no folder is searched deeper."""


def check_pattern(pattern: str, such_as: str) -> None:
    """A pattern stays below the job's folder; raises ValueError."""
    parts = pattern.split("/")
    if not pattern or pattern.startswith("/") or ".." in parts or "\0" in pattern:
        raise ValueError(f"{pattern[:200]!r} must be a pattern below the job's own folder, such as {such_as}")
    if len(parts) > MAX_PATTERN_PARTS:
        raise ValueError(f"{pattern[:80]!r}… has more than {MAX_PATTERN_PARTS} folders; shorten it")


Duration = Annotated[
    str,
    BeforeValidator(_duration),
    Field(description="90s, 1h30m, 2d, 01:30:00 or PT1H30M", max_length=64, json_schema_extra={"pattern": _DURATION}),
]
Cpus = Annotated[
    str,
    BeforeValidator(_cpus),
    Field(description="2, 0.5 or 500m", max_length=32, json_schema_extra=_amount(_CPUS)),
]
Memory = Annotated[
    str,
    BeforeValidator(_memory),
    Field(description="512Mi, 4Gi or 2G", max_length=32, json_schema_extra=_amount(_MEMORY)),
]


def _below(folder: str) -> str:
    if folder != "." and ("\0" in folder or {"", ".", ".."} & set(folder.removesuffix("/").split("/"))):
        raise ValueError("must be a folder below the job's own, such as data, or . for the job's own folder")
    return folder.removesuffix("/")


def _stays(pattern: str) -> str:
    if ".." in pattern.split("/"):
        raise ValueError("must be a file below the job's own folder, such as logs/%j.out")
    return pattern


Below = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_below)]
LogPattern = Annotated[str, StringConstraints(pattern=r"^[^/\x00][^\x00]*$", max_length=1024), AfterValidator(_stays)]
