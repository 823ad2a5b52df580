"""Where a person's environments of Python packages are at a site: beside their unpacked images.

The environments themselves are made by jobs (`engines/environment_words`).
"""

from __future__ import annotations

from dataclasses import replace

from isthmus.engines.base import Run
from isthmus.engines.slurm.batch.scripts import NO_FOLDER, EnvironmentFolder
from isthmus.engines.slurm.settings import SlurmSettings

from .image_stores import ImageStore


class PersonEnvironments:
    """Has the folder there before a run needs it."""

    def __init__(self, settings: SlurmSettings, store: ImageStore) -> None:
        self._settings, self._store = settings, store
        self._opened = set[str]()

    async def ready(self, run: Run, user: str) -> Run:
        """The run with what the site says of packages; raises SiteUnavailable."""
        if run.python is None:
            return run
        if user not in self._opened:
            await self._store.open_folder(user)
            self._opened.add(user)
        return replace(run, python=run.python.of_site(self._settings.package_index, self._settings.wheels))

    def folder(self, run: Run, user: str) -> EnvironmentFolder:
        """Where they are, for a run that wants one."""
        if run.python is None:
            return NO_FOLDER
        return EnvironmentFolder(f"{self._store.folder(user)}/environments", self._settings.max_image_bytes)
