"""The contract of container runtimes on all that can be installed here, and what their probes mean."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from isthmus.images import roots
from isthmus.images.archives import find_image, read_archive
from isthmus.images.carrying import ImageStream, RootPlan, folder_name
from isthmus.images.runtimes import RUNTIMES, Runtime
from isthmus.images.runtimes.probing import describe, no_runtime, parse
from isthmus.resources.sites import ImageRuntime, SlurmImages
from isthmus.testing.image_archives import HERE, busybox_layer, oci_archive
from isthmus.testing.runtimes import RuntimeContract


@pytest.fixture
def top(account: str) -> Iterator[Path]:
    """A folder that the account can reach."""
    folder = Path(tempfile.mkdtemp(prefix="irt-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        shutil.chown(folder, account, account)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def root(top: Path, account: str) -> Path:
    """An image, unpacked as at a site."""
    (top / "image.tar").write_bytes(oci_archive([busybox_layer()]))
    image = find_image(dict(read_archive(top / "image.tar")), HERE)
    plan = RootPlan(str(top / "images"), image, "tiny", 2**30)
    stream = ImageStream(plan.line(), image)
    line = b""
    while not line.endswith(b"\n"):
        line += stream.read(1)
    roots.keep(json.loads(line), stream)  # type: ignore[arg-type]
    for path in top.rglob("*"):
        if os.geteuid() == 0 and not path.is_symlink():
            shutil.chown(path, account, account)
    return top / "images/roots" / folder_name(image.digest) / "root"


@pytest.fixture
def work(top: Path, account: str) -> Path:
    """The folder that programs work in."""
    made = top / "work"
    (made / "run").mkdir(parents=True)
    if os.geteuid() == 0:
        shutil.chown(made, account, account)
        shutil.chown(made / "run", account, account)
    return made


@pytest.mark.real
class TestRuntimes(RuntimeContract):
    @pytest.fixture(params=RUNTIMES)
    def runtime(self, request: pytest.FixtureRequest) -> Runtime:
        return RUNTIMES[request.param]


ALL = list(RUNTIMES.values())


def test_the_settings_of_a_site_name_them_all_in_their_order() -> None:
    assert SlurmImages().runtimes == list(RUNTIMES) == list(get_args(ImageRuntime))


SEEN = """\
motd of the cluster
isthmus-probe node n7 x86_64
isthmus-probe bubblewrap no bubblewrap 0.8.0
isthmus-probe why bubblewrap bwrap: No permissions to create new namespace
isthmus-probe proot yes _____ | __ | 5.1.0 built-in accelerators: seccomp_filter = no Copyright (C) 2014
"""


def test_a_probe_says_what_is_there_and_what_would_make_it_better() -> None:
    found = parse(SEEN, ALL)
    assert found is not None
    assert (found.node, found.machine, found.usable) == ("n7", "x86_64", ("proot",))
    shown = describe(found, RUNTIMES)
    assert shown["images"] == "proot 5.1.0 (seen on n7, x86_64)"
    assert "slower" in shown["images-differ"]
    assert "user.max_user_namespaces" in shown["images-better"]
    assert "No permissions" in shown["images-better"]


def test_a_node_without_any_says_so() -> None:
    found = parse("isthmus-probe node n1 aarch64\n", ALL)
    assert found is not None
    assert no_runtime(found) == "n1 has none of charliecloud, bubblewrap, podman, proot"
    assert describe(found, RUNTIMES)["images"].startswith("none: n1 has none")
    assert "install one of" in describe(found, RUNTIMES)["images-better"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "isthmus-probe node",
        "isthmus-probe node a/b x86_64",
        "isthmus-probe\n" * 10**5,
        "\n" * 200 + SEEN,
    ],
)
def test_what_is_no_probe(text: str) -> None:
    assert parse(text, ALL) is None
