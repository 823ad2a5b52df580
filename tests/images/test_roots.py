"""What unpacks an image at a Slurm site, as a process: killed, or out of space, it leaves nothing half unpacked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.errors import IsthmusError, SiteUnavailable
from isthmus.images.archives import find_image, read_archive
from isthmus.images.carrying import ImageStream, RootPlan, answered
from isthmus.testing.image_archives import HERE, folder, layer, link, member, oci_archive
from isthmus.testing.killing import KILLED

LAYERS = [
    layer(folder("bin"), member("bin/sh", b"#!", mode=0o755), member("a/b", b"1"), link("c", "a/b")),
    layer(member("a/.wh.b"), member("a/d", b"2" * 4096), link("e", "a/d", hard=True)),
]
MODULE = "isthmus.images.roots"


@pytest.fixture
def plan(tmp_path: Path) -> RootPlan:
    (tmp_path / "image.tar").write_bytes(oci_archive(LAYERS))
    return RootPlan(str(tmp_path / "person"), find_image(read_archive(tmp_path / "image.tar"), HERE), "tiny", 2**30)


def unpacked(
    plan: RootPlan, *before: str, words: tuple[str, ...] = ("-m", MODULE)
) -> subprocess.CompletedProcess[bytes]:
    sent = b"".join(iter(ImageStream(plan.line(), plan.image).read, b""))
    env = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*before, sys.executable, "-S", *words], input=sent, env=env, capture_output=True, check=False
    )


def failure(done: subprocess.CompletedProcess[bytes], plan: RootPlan) -> IsthmusError:
    with pytest.raises(SiteUnavailable) as raised:
        answered(done.returncode, done.stdout.decode(), done.stderr.decode(), plan)
    return raised.value


def test_killed_at_every_step_the_next_one_makes_it_whole(plan: RootPlan) -> None:
    steps = 0
    while True:
        steps += 1
        killed = unpacked(plan, words=("-c", KILLED, str(steps), MODULE))
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed
        kept = answered(0, unpacked(plan).stdout.decode(), "", plan)
        found = {str(path.relative_to(kept.root)) for path in Path(kept.root).rglob("*") if not path.is_dir()}
        assert {"bin/sh", "a/d", "c", "e"} <= found
        assert "a/b" not in found
        assert list(Path(plan.folder, "staging").iterdir()) == []
        assert len(list(Path(plan.folder, "roots").iterdir())) == 1
        shutil.rmtree(plan.folder)
    assert steps > 20


@pytest.mark.parametrize("room", ["size=8k", "size=10m,nr_inodes=12"])
def test_no_space_left(plan: RootPlan, room: str) -> None:
    """Of bytes, and of files."""
    top = Path(plan.folder)
    top.mkdir()
    mount = (
        f'mount -t tmpfs -o mode=700,{room} tmpfs {top} && "$@"; code=$?; ls {top}/staging {top}/roots >&2; exit $code'
    )
    done = unpacked(plan, "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh")
    assert "there is no space left" in failure(done, plan).message
    assert done.stderr.decode().split() == [f"{top}/roots:", f"{top}/staging:"]
    assert json.loads(done.stdout)["errno"]
