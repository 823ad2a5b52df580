"""Start of `/bin/true` in an unpacked image, as a Slurm node does it, against the container runtime by itself."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from isthmus.engines.base import Run
from isthmus.engines.slurm.batch import scripts
from isthmus.engines.slurm.containers import container_lines
from isthmus.engines.slurm.containers.container_lines import ImageRoot
from isthmus.images import roots
from isthmus.images.archives import find_image, read_archive
from isthmus.images.carrying import ImageStream, RootPlan, folder_name
from isthmus.images.runtimes import RUNTIMES, ContainerView
from isthmus.images.runtimes.base import start
from isthmus.testing.image_archives import HERE, busybox_layer, oci_archive

from .report import Figure, Section

USER = "games" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
MOST = 1.2


def run(seconds: int) -> Section:
    count = max(10, seconds * 4)
    section = Section(
        "Programs in images",
        "`/bin/true` of an unpacked image of one static file, started by the lines that a Slurm node runs, against the "
        "same container started by the runtime's own command. What those lines take for a job without an image is "
        "subtracted. Taken in turns; medians.",
    )
    folder = Path(tempfile.mkdtemp(prefix="irt-"))
    try:
        section.figures += [_figure(name, folder, count) for name in RUNTIMES if shutil.which(RUNTIMES[name].program)]
    finally:
        shutil.rmtree(folder)
    return section


def _figure(name: str, folder: Path, count: int) -> Figure:
    root, work = _unpacked(folder / name), folder / name / "run"
    job = Run("benchmark1.1", "n", "j", ("/bin/true",))
    bare = f"set -- /bin/true\n{start(RUNTIMES[name], ContainerView(str(root)))}"
    image = ImageRoot("sha256:0", str(root), {}, (name,))
    with_image = container_lines.program(
        job, str(work), container_lines.environment(job, USER, str(work), image), image
    )
    plain = scripts.program(job, str(work), scripts.environment(job, USER, str(work)))
    texts = {"bare": bare, "image": scripts.launch(":", with_image, ":"), "plain": scripts.launch(":", plain, ":")}
    times: dict[str, list[float]] = {which: [] for which in texts}
    for _ in range(count):
        for which, text in texts.items():
            (work / "launch").write_text(text)
            times[which].append(_seconds(work / "launch"))
    middle = {which: statistics.median(found) * 1000 for which, found in times.items()}
    ratio = (middle["image"] - middle["plain"]) / middle["bare"]
    ours = f"{middle['image']:.1f} ms, of which {middle['plain']:.1f} ms without an image"
    return Figure(name, ours, f"{middle['bare']:.1f} ms by itself", ratio, f"at most {MOST} times", ratio <= MOST)


def _seconds(launch: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        [*_becoming(), "/bin/sh", str(launch), "program"], check=True, cwd="/", env={"PATH": os.defpath, "USER": USER},
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - began


def _becoming() -> Sequence[str]:
    if os.geteuid() != 0:
        return ()
    return ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--")


def _unpacked(folder: Path) -> Path:
    (folder / "run/work").mkdir(parents=True)
    (folder / "run/tmp").mkdir()
    (folder / "image.tar").write_bytes(oci_archive([busybox_layer()]))
    image = find_image(dict(read_archive(folder / "image.tar")), HERE)
    plan = RootPlan(str(folder / "images"), image, "tiny", 2**30)
    roots.keep(json.loads(plan.line()), ImageStream(b"", image))  # type: ignore[arg-type]
    if os.geteuid() == 0:
        for path in (folder.parent, folder, *folder.rglob("*")):
            if not path.is_symlink():
                shutil.chown(path, USER, USER)
    return folder / "images/roots" / folder_name(image.digest) / "root"
