"""The files that start a run, in an image or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from isthmus.engines.base import Run
from isthmus.engines.metering import Power
from isthmus.engines.meters import Metering, metering
from isthmus.engines.slurm.batch import sampler, scripts
from isthmus.engines.slurm.batch.scripts import NO_FOLDER, EnvironmentFolder
from isthmus.engines.slurm.facts import SiteFacts
from isthmus.engines.slurm.files.base import LaunchFile
from isthmus.resources.deviceclasses import DeviceClass

from . import container_lines
from .container_lines import ImageRoot


class SiteKnowledge(Protocol):
    """What is known of the site."""

    facts: SiteFacts
    power: Mapping[str, Power]


def launch_files(
    run: Run,
    folder: str,
    user: str,
    devices: Mapping[str, str],
    classes: Mapping[str, DeviceClass],
    known: SiteKnowledge,
    image: ImageRoot | None,
    environments: EnvironmentFolder = NO_FOLDER,
) -> dict[str, LaunchFile]:
    """What the run's folder holds before it begins, beside the files sent along."""
    measured, guessed = _metering(run, classes, known.power)
    asks = known.facts.gathers_usage and not known.facts.accounting
    batch = scripts.batch(run, folder, user, devices=devices, metered=bool(measured.meters), ask_usage=asks)
    if image is None:
        env = scripts.environment(run, user, folder)
        program = scripts.program(run, folder, env, user=user, environments=environments)
    else:
        env = container_lines.environment(run, user, folder, image)
        program = container_lines.program(run, folder, env, image, environments)
    launch = {"launch": LaunchFile(scripts.launch(batch, program, sampler.script(measured, guessed)))}
    if run.script is not None:
        launch["script"] = LaunchFile(run.script, 0o500)
    return launch


def _metering(
    run: Run, classes: Mapping[str, DeviceClass], power: Mapping[str, Power]
) -> tuple[Metering, sampler.Guess | None]:
    """What shall be read beside the run, and guessed: nothing where one node would speak for several."""
    if run.nodes > 1:
        return Metering(), None
    return metering(classes, run.devices), sampler.guess(power, run.devices, run.milli_cpus)
