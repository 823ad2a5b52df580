"""A task file: a job in a few lines of YAML, without apiVersion, kind and metadata. Pure.

```yaml
command: python train.py --epochs 3
cpus: 4
gpus: 1
outputs: [out/*.csv]
```

Its names are those of the options of `isthmus run`, in the plural or not; a whole manifest is taken as it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from isthmus.errors import Invalid

from .run_words import FLAGS, RunOptions

_FIELDS = {flag.removeprefix("--"): field for flag, field in FLAGS.items() if flag.startswith("--")}
_NOT_IN_FILES = frozenset({"url", "token", "output", "detach", "quiet", "force", "stdin", "no_stdin"})
_PLURALS = {"sites": "site", "devices": "device", "any-devices": "any_device"}
_LISTS = frozenset({"device", "any_device", "expect", "checkpoint", "site", "after", "outputs_of", "outputs"})
_NUMBERS = frozenset({"nodes", "tasks", "retries", "priority", "gpus"})


def is_manifest(document: Mapping[str, Any]) -> bool:
    """Whether it is an object of Kubernetes' form and not a task."""
    return "apiVersion" in document or "kind" in document or "spec" in document


def with_task(options: RunOptions, document: Mapping[str, Any]) -> RunOptions:
    """The options with what a task file says; words on the command line go first."""
    said: dict[str, Any] = {}
    for name, value in document.items():
        field = _field(str(name))
        said[field] = _READERS.get(field, _text)(str(name), value)
    if not said.get("words"):
        raise Invalid("the task file has no command; write command: python train.py")
    given = {name: value for name, value in options._asdict().items() if value not in (None, (), False)}
    return RunOptions(**{**said, **given, "words": (*said["words"], *options.words[1:])})


def _field(name: str) -> str:
    written = name.replace("_", "-")
    if written in ("command", "run"):
        return "words"
    field = _PLURALS.get(written) or _FIELDS.get(written)
    if field is None or field in _NOT_IN_FILES:
        from difflib import get_close_matches

        known = sorted({"command", *_FIELDS} - {flag for flag, f in _FIELDS.items() if f in _NOT_IN_FILES})
        near = get_close_matches(written, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"the fields are {', '.join(known)}"
        raise Invalid(f"a task file has no field {name!r}; {hint}")
    return field


def _text(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        return str(value)
    raise Invalid(f"{name} in the task file must be a text or a number")


def _command(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value)) if "\n" not in value.strip() else ("sh", "-c", value)
        except ValueError as error:
            raise Invalid(f"{name} in the task file cannot be read: {error}") from None
    if isinstance(value, list) and value:
        return tuple(str(word) for word in value)
    raise Invalid(f"{name} in the task file must be a text such as python train.py, or a list of words")


def _list(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):  # devices: {akida: 2}
        return tuple(f"{key}:{number}" for key, number in value.items())
    if isinstance(value, str | int):
        return (str(value),)
    if isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
        return tuple(str(part) for part in value)
    raise Invalid(f"{name} in the task file must be a list, such as [A, B]")


def _env(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(f"{key}={text}" for key, text in value.items())
    return _list(name, value)


def _number(name: str, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Invalid(f"{name} in the task file must be a whole number")


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "words": _command,
    "env": _env,
    "late_cost": lambda name, value: float(_text(name, value)),
    **dict.fromkeys(_LISTS, _list),
    **dict.fromkeys(_NUMBERS, _number),
}
