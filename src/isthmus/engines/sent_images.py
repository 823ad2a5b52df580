"""Images among the files that are sent along with a job: found by their paths, and not copied into the job's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from isthmus.errors import EngineRefused, Invalid
from isthmus.images.references import FileReference, Reference, parse_reference
from isthmus.resources.work.trees import TreeFile

from .base import FileSource


def check_reference(image: str) -> Reference:
    """What a job calls its image; raises EngineRefused."""
    try:
        return parse_reference(image)
    except Invalid as error:
        raise EngineRefused(error.message, causes=error.causes) from error


def contents(files: FileSource | None) -> Mapping[str, Callable[[], Path]]:
    """Where the content of each file lies."""
    if files is None:
        return {}
    return {file.path: partial(files.path_of, file) for file in files.files if file.link is None}


class _Without:
    """Files without some of them."""

    def __init__(self, files: FileSource, kept: list[TreeFile]) -> None:
        self.files, self.path_of = kept, files.path_of


def without_image(image: str, files: FileSource | None) -> FileSource | None:
    """The files that the job itself needs: an image is as large as all the others together, and has been unpacked."""
    wanted = check_reference(image)
    if files is None or not isinstance(wanted, FileReference):
        return files
    kept = [file for file in files.files if file.path != wanted.path and not file.path.startswith(f"{wanted.path}/")]
    return _Without(files, kept)
