"""Images from the command line to the job: a file here is what the job runs in, and the status says which bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.client.image_files import image_files
from isthmus.errors import Invalid
from isthmus.testing.image_archives import busybox_layer, oci_archive, oci_blobs, oci_files

from .conftest import Call

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def layers() -> list[bytes]:
    return [busybox_layer()]


def test_an_archive_is_sent_along_and_run_in(isthmus: Call, work: Path, tmp_path: Path, layers: list[bytes]) -> None:
    (work / "data.txt").write_text("beside it")
    archive = work / "tiny.tar"
    archive.write_bytes(oci_archive(layers))
    layout = tmp_path / "layout"
    blobs, manifest = oci_blobs(layers)
    for name, content in oci_files(blobs, [manifest]).items():
        (layout / name).parent.mkdir(parents=True, exist_ok=True)
        (layout / name).write_bytes(content)
    said = ("sh", "-c", "cat /etc/os-release; ls -A")
    done = isthmus("run", "--name", "one", "--image", "oci-archive:tiny.tar", "--", *said)
    assert (done.returncode, done.stdout) == (0, "ID=tiny\ndata.txt\n"), done
    done = isthmus("run", "--no-files", "--image", f"oci:{layout}", "--", *said)
    assert (done.returncode, done.stdout) == (0, "ID=tiny\n"), done
    job = json.loads(isthmus("get", "job", "one", "-o", "json").stdout)
    assert job["status"]["image"] == manifest["digest"]
    (work / "batch.sh").write_text("#!/bin/sh\n#SBATCH --ntasks=1\ncat /etc/os-release\n")
    done = isthmus("run", "--image", "oci-archive:tiny.tar", "batch.sh")
    assert (done.returncode, done.stdout) == (0, "ID=tiny\n"), done
    done = isthmus("run", "--image", "oci-archive:nowhere.tar", "--", "true")
    assert "there is no file 'nowhere.tar' here" in done.stderr
    assert manifest["digest"] in isthmus("job", "one").stdout
    page = isthmus("site", "local").stdout.splitlines()
    assert any(line.startswith("Images: bubblewrap 0") for line in map(" ".join, map(str.split, page)))
    able = json.loads(isthmus("site", "local", "-o", "json").stdout)["status"]["abilities"]
    assert {"images", "image-files"} <= set(able)


def test_which_images_are_files(tmp_path: Path) -> None:
    (tmp_path / "x.tar").touch()
    assert image_files(None) is None
    assert image_files("python:3.12") is None
    assert image_files("localhost:5000/x") is None
    found = image_files(f"docker-archive:{tmp_path}/x.tar")
    assert found is not None
    assert found.name == "docker-archive:.isthmus-image/image.tar"
    assert found.files == {".isthmus-image/image.tar": str(tmp_path / "x.tar")}
    for wrong in ("oci-archive:", f"oci-archive:{tmp_path}", f"oci:{tmp_path}/x.tar"):
        with pytest.raises(Invalid, match="there is no"):
            image_files(wrong)
