"""What a run in an image needs before it is sent: a runtime that works on the nodes, and the image unpacked there.

Login and compute nodes differ, so that what runs images is looked for on a node: by a small job of the person whose run
is the first to need it (`images/runtimes/probing`), and again after a day. Until then it is not known, and nothing is
refused. A job that finds something else on its node tries what there is (`container_lines`).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from isthmus._kit.locks import KeyedLocks
from isthmus._kit.tasks import SupervisedTasks
from isthmus.engines.base import FileSource, Observation, Run, RunState, Stream
from isthmus.engines.sent_images import check_reference, contents, without_image
from isthmus.engines.slurm.files.records import RunRecord
from isthmus.engines.slurm.settings import SlurmSettings
from isthmus.errors import EngineRefused, IsthmusError, SiteUnavailable
from isthmus.images.carrying import KeptRoot, RootPlan
from isthmus.images.layer_fetching import FoundImage, ImageFetcher, forget_layers
from isthmus.images.manifests import architecture_of
from isthmus.images.registries import RegistryClient, trusting
from isthmus.images.runtimes import RUNTIMES, probing
from isthmus.images.runtimes.probing import NodeProbe
from isthmus.resources.deviceclasses import DeviceClass
from isthmus.resources.engine_options import SlurmOptions

from .container_lines import ImageRoot, in_order
from .image_stores import ImageStore

PROBE_JOB = "isthmus-images"
_KNOWN_SECONDS = 24 * 3600.0
"""How long what was found on a node is believed."""
_WAIT_SECONDS = 10.0
"""How long a run waits for the answer before it is tried again later."""
_LOOK_SECONDS = 0.2
_GIVEN_UP_SECONDS = 3600.0
"""After this long a job that looks for runtimes and still waits in the queue is cancelled."""
_LAYERS_SHARE = 4


class Runs(Protocol):
    """The part of the engine that the job which looks around needs."""

    async def submit(self, run: Run, files: FileSource | None = None) -> Observation: ...  # noqa: D102
    async def observe(self, run_id: str) -> Observation | None: ...  # noqa: D102
    async def cancel(self, run_id: str) -> None: ...  # noqa: D102
    async def read_log(self, run_id: str, stream: Stream, offset: int, size: int) -> bytes: ...  # noqa: D102
    async def forget(self, run_id: str) -> None: ...  # noqa: D102
    def records(self) -> Mapping[str, RunRecord | None]: ...  # noqa: D102


class ClusterImages:
    """Images at one Slurm site."""

    def __init__(self, settings: SlurmSettings, store: ImageStore, runs: Runs, tasks: SupervisedTasks) -> None:
        self._settings, self._store, self._runs, self._tasks = settings, store, runs, tasks
        self._wanted = settings.image_runtimes
        self._probe: NodeProbe | None = None
        self._probed_at = 0.0
        self._looked = asyncio.Event()
        """Set while nobody is looking."""
        self._looked.set()
        self._why = ""
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

    # What runs images

    @property
    def none(self) -> str:
        """Why no images are run here; empty if they are, or it is not known."""
        if not self._wanted:
            return "the site's settings name no container runtime (slurm.images.runtimes)"
        if self._probe is not None and not self._probe.usable and not self._stale:
            return probing.no_runtime(self._probe)
        return ""

    @property
    def _stale(self) -> bool:
        return self._probe is None or time.monotonic() - self._probed_at > _KNOWN_SECONDS

    def describe(self) -> Mapping[str, str]:
        """What `isthmus site` shows."""
        if self._probe is not None:
            return probing.describe(self._probe, RUNTIMES)
        if self.none:
            return {"images": f"none: {self.none}"}
        looked = f"by one of {', '.join(self._wanted)}; the first job with an image finds out which its nodes have"
        return {"images": f"{looked} ({self._why})" if self._why else looked}

    def check(self, run: Run) -> None:
        """Refuse what can never work here."""
        check_reference(run.image or "")
        if self.none:
            raise EngineRefused(
                f"This Slurm site runs no container images: {self.none}. Remove image, or choose another site."
            )

    async def _probed(self, run: Run) -> NodeProbe:
        if self._stale:
            if self._looked.is_set():
                self._looked.clear()
                self._tasks.spawn("slurm-image-probe", lambda: self._look(run), of=run.namespace)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._looked.wait(), _WAIT_SECONDS)
        if self._probe is None or self._stale:
            why = f" ({self._why})" if self._why else ""
            raise SiteUnavailable(f"It is being found out what runs images on the nodes of this site{why}.")
        return self._probe

    async def _look(self, run: Run) -> None:
        try:
            await self._find_runtimes(run)
        finally:
            self._looked.set()

    async def _find_runtimes(self, run: Run) -> None:
        """Send a job that looks around, as the person and to where the run would go, and read what it wrote."""
        runtimes = [RUNTIMES[name] for name in self._wanted]
        asks = run.section(SlurmOptions)
        options = SlurmOptions(
            partition=asks.partition, account=asks.account, qos=asks.qos, reservation=asks.reservation,
            constraint=asks.constraint,
        )  # fmt: skip
        looking = Run(
            f"{PROBE_JOB}-{secrets.token_hex(8)}.1",
            run.namespace,
            PROBE_JOB,
            ("/bin/sh", "-c", probing.script(runtimes)),
            member=run.member,
            milli_cpus=min(1000, run.milli_cpus),
            time_limit=120.0,
            options=(options,),
        )
        try:
            await self._clear_up()
            await self._runs.submit(looking)
            text = await self._said(looking.id)
            found = probing.parse(text, runtimes)
        except IsthmusError as error:
            self._why = f"the job that looks for it: {error.message}"
            return
        if found is None:
            self._why = "the job that looks for it wrote nothing that could be read"
            return
        self._probe, self._probed_at, self._why = found, time.monotonic(), ""
        if not found.usable:
            self._why = probing.no_runtime(found)

    async def _clear_up(self) -> None:
        """End what a control plane that was killed had begun to find out."""
        for old in [run_id for run_id in self._runs.records() if run_id.startswith(PROBE_JOB)]:
            seen = await self._runs.observe(old)
            if seen is not None and seen.state is RunState.ENDED:
                await self._runs.forget(old)
            else:
                await self._runs.cancel(old)

    async def _said(self, run_id: str) -> str:
        until = time.monotonic() + _GIVEN_UP_SECONDS
        while True:
            seen = await self._runs.observe(run_id)
            if seen is not None and seen.state is RunState.ENDED:
                break
            if time.monotonic() > until:
                await self._runs.cancel(run_id)
                until = float("inf")
            self._why = f"job {seen.engine_id} looks for it" if seen is not None else self._why
            await asyncio.sleep(_LOOK_SECONDS)
        text = (await self._runs.read_log(run_id, Stream.STDOUT, 0, 1 << 16)).decode(errors="replace")
        await self._runs.forget(run_id)
        return text

    # The image itself

    async def ready(
        self, run: Run, user: str, files: FileSource | None, classes: Mapping[str, DeviceClass]
    ) -> tuple[ImageRoot, FileSource | None]:
        """Have its image at the site: where it is, and the other files. Raises EngineRefused, SiteUnavailable."""
        probe = await self._probed(run)
        if not probe.usable:
            self.check(run)
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
