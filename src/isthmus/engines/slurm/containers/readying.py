"""What a run in an image needs before it is sent: a runtime that works on the nodes, and the image unpacked there.

What runs images is found out by `runtime_search`. A job that finds something else on its node tries what there is
(`container_lines`).
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from isthmus._kit.locks import KeyedLocks
from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import FileSource, Run
from isthmus.engines.sent_images import check_reference, contents, without_image
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.errors import EngineRefused
from isthmus.images.carrying import KeptRoot, RootPlan
from isthmus.images.layer_fetching import FoundImage, ImageFetcher, forget_layers
from isthmus.images.manifests import architecture_of
from isthmus.images.registries import RegistryClient, trusting
from isthmus.images.runtimes import RUNTIMES
from isthmus.resources.deviceclasses import DeviceClass

from .container_lines import ImageRoot, in_order
from .image_stores import ImageStore
from .runtime_search import Runs, RuntimeSearch

_LAYERS_SHARE = 4


class ClusterImages:
    """Images at one Slurm site."""

    def __init__(self, settings: SlurmSettings, store: ImageStore, runs: Runs, tasks: SupervisedTasks) -> None:
        self._settings, self._store, self._runs = settings, store, runs
        self._search = RuntimeSearch(settings, runs, tasks)
        self._wanted = settings.image_runtimes
        self._making = KeyedLocks()
        self._busy = 0
        self._registries: RegistryClient | None = None
        self._fetchers: dict[str, ImageFetcher] = {}
        self._own: tempfile.TemporaryDirectory[str] | None = None

    async def close(self) -> None:
        """Let go."""
        self._store.close()
        if self._registries is not None:
            await self._registries.close()
        if self._own is not None:
            self._own.cleanup()

    @property
    def none(self) -> str:
        """Why no images are run here, for anybody; empty if they are, or it is not known."""
        return self._search.none()

    def describe(self) -> Mapping[str, str]:
        """What `isthmus site` shows."""
        return self._search.describe()

    def check(self, run: Run, user: str) -> None:
        """Refuse what can never work here."""
        check_reference(run.image or "")
        if why := self._search.none(user):
            raise EngineRefused(
                f"This Slurm site runs no container images: {why}. Remove image, or choose another site."
            )

    # The image itself

    async def ready(
        self, run: Run, user: str, files: FileSource | None, classes: Mapping[str, DeviceClass]
    ) -> tuple[ImageRoot, FileSource | None]:
        """Have its image at the site: where it is, and the other files. Raises EngineRefused, SiteUnavailable."""
        probe = await self._search.find(run, user)
        if not probe.usable:
            self.check(run, user)
        assert run.image is not None
        found = await self._fetcher(probe.machine).find(run.image, contents(files), run.login)
        kept = await self._store.find(user, found.digest)
        if kept is None:
            async with self._making.hold((user, found.digest)):
                kept = await self._store.find(user, found.digest) or await self._make(run.image, user, found)
        libraries = tuple(path for name in run.devices if (c := classes.get(name)) for path in c.spec.libraries)
        order = in_order(self._wanted, probe.usable)
        if run.tasks > 1 or run.nodes > 1:
            order = tuple(name for name in order if RUNTIMES[name].passes_files) or order
        return ImageRoot(kept.digest, kept.root, kept.env, order, libraries), without_image(run.image, files)

    async def _make(self, name: str, user: str, found: FoundImage) -> KeptRoot:
        self._busy += 1
        try:
            async with self._making.hold((found.owner, found.digest)):  # of several persons, one fetches it
                image = await found.fetch()
            plan = RootPlan(self._store.folder(user), image, name, self._settings.max_image_bytes, self._in_use(user))
            return await self._store.make(user, plan)
        finally:
            self._busy -= 1
            if not self._busy:
                most = self._settings.max_image_bytes // _LAYERS_SHARE
                await asyncio.to_thread(forget_layers, self._layers(), most)

    def _in_use(self, user: str) -> list[str]:
        """Digests of images that runs of a person are in, or wait for."""
        records = filter(None, self._runs.records().values())
        return [r.image for r in records if r.image and r.user == user and r.final is None]

    def _fetcher(self, machine: str) -> ImageFetcher:
        if self._registries is None:  # it reads all authorities that the system trusts: not before it is needed
            self._registries = RegistryClient(trusting(self._settings.registry_authorities))
        if machine not in self._fetchers:
            self._fetchers[machine] = ImageFetcher(self._layers(), self._registries, architecture_of(machine))
        return self._fetchers[machine]

    def _layers(self) -> Path:
        """Where layers are fetched to: of the control plane's own."""
        if self._settings.layers is not None:
            return self._settings.layers
        if self._own is None:
            self._own = tempfile.TemporaryDirectory(prefix="isthmus-layers-")
        return Path(self._own.name)
