"""What Slurm sites can do by themselves."""

from __future__ import annotations

from dataclasses import replace

from isthmus.engines.base import Capabilities
from isthmus.resources.work.engine_options import SlurmOptions

WITHOUT_IMAGES = Capabilities(
    queues=True, multi_node=True, hold=True, dependencies=True, samples=True, corrects=True, log_files=True,
    numbers=True, environments=True, options=SlurmOptions,
)  # fmt: skip
WITH_IMAGES = replace(WITHOUT_IMAGES, images=True, image_files=True)
