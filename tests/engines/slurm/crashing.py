"""Opens an engine and submits one run; the tests kill it at a named place."""

from __future__ import annotations

import asyncio
import sys

from isthmus.engines.base import Run
from isthmus.engines.slurm.opening import make_engine
from isthmus.engines.slurm.settings import Mapped, SlurmSettings


async def main(folder: str, conf: str, path: str, user: str, run_id: str, script: str = "echo once") -> None:
    engine = make_engine(SlurmSettings(folder=folder, accounts=(Mapped("*", user),), conf=conf, path=path))
    await engine.open()
    await engine.submit(Run(run_id, "t", "once", command=("/bin/sh", "-c", script)))
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
