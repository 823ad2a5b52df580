"""Manifests from files, folders and standard input: YAML with several documents, or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from isthmus.errors import Invalid, TooLarge

_SUFFIXES = (".yaml", ".yml", ".json")
_MAX_BYTES = 32 << 20
_MAX_DEPTH = 64


def read_manifests(sources: Iterable[str]) -> list[dict[str, Any]]:
    """Every object in these files (a folder: in the manifests in it; `-`: standard input), in their order."""
    found: list[dict[str, Any]] = []
    for source in sources:
        if source == "-":
            found += parse_manifests(sys.stdin.buffer.read(_MAX_BYTES + 1), "standard input")
            continue
        for path in _files(Path(source)):
            with path.open("rb") as file:
                found += parse_manifests(file.read(_MAX_BYTES + 1), str(path))
    if not found:
        raise Invalid(
            f"there is no manifest in {', '.join('standard input' if source == '-' else source for source in sources)}"
        )
    return found


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(item for item in path.iterdir() if item.suffix in _SUFFIXES and item.is_file())
    return [path]


def parse_manifests(text: bytes, where: str) -> list[dict[str, Any]]:
    """The objects in a text; a List is taken apart. Raises Invalid that says where it cannot be read."""
    import yaml

    if len(text) > _MAX_BYTES:
        raise TooLarge(f"{where} is larger than {_MAX_BYTES >> 20} MiB; a manifest is not the place for data")
    from isthmus._kit.plain_yaml import PlainLoader, check_events

    try:
        check_events(text, _MAX_DEPTH)
        documents = list(yaml.load_all(text, Loader=PlainLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise Invalid(f"{where}{line} cannot be read: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reported = " ".join(str(error).split()).replace(' in "<byte string>",', ",")
        raise Invalid(f"{where} cannot be read: {reported}") from None
    found: list[dict[str, Any]] = []
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            what = "a list" if isinstance(document, list) else "a text" if isinstance(document, str) else "a value"
            raise Invalid(f"{where} holds {what} where an object with a kind is expected")
        items = document.get("items") if str(document.get("kind", "")).endswith("List") else [document]
        for item in items or ():
            if not isinstance(item, dict) or not isinstance(item.get("metadata") or {}, dict):
                raise Invalid(f"{where} holds something that is not an object with a kind and metadata")
            found.append(item)
    return found
