"""Opens an engine and submits one run; the tests kill it at a named place."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from isthmus.engines.base import Run
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.engines.kubernetes.settings import KubernetesSettings
from isthmus.testing.engines import wait_ended


async def main(folder: str, site: str, kubeconfig: str, image: str, run_id: str) -> None:
    settings = KubernetesSettings(
        folder=Path(folder), site=site, kubeconfig=Path(kubeconfig), image=image, helper_image=image
    )
    engine = KubernetesEngine(settings)
    await engine.open()
    await engine.submit(Run(run_id, "t", "once", command=("/bin/sh", "-c", "echo once"), keeps_files=False))
    await wait_ended(engine, run_id)
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
