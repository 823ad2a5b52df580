"""Jobs in images at a local site: what they see, who they are, and that an image can harm nobody by what it brings."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, Run
from isthmus.engines.local.driver import LocalEngine
from isthmus.engines.local.settings import DeclaredDevices
from isthmus.errors import EngineRefused
from isthmus.testing.engines import FolderSource, MemorySink, new_run_id, wait_ended, whole_log
from isthmus.testing.image_archives import (
    BUSYBOX,
    busybox_layer,
    folder,
    layer,
    link,
    member,
    oci_archive,
    oci_blobs,
    oci_files,
)

from .conftest import ACCOUNT, IS_ROOT, MakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.real]
TINY = oci_archive([busybox_layer()], ["PATH=/opt/bin:/bin", "GREETING=hello there", "HOME=/root"])


def image_run(script: str, image: str = "oci-archive:image.tar", **fields: object) -> Run:
    return Run(new_run_id(), "n", "j", ("sh", "-c", script), account=ACCOUNT, image=image, **fields)  # type: ignore


async def output(engine: LocalEngine, tmp_path: Path, script: str, content: bytes = TINY, **fields: object) -> str:
    run = image_run(script, **fields)
    await engine.submit(run, FolderSource(tmp_path / "sent", {"image.tar": content, "data": b"sent along"}))
    end = await wait_ended(engine, run.id)
    log = (await whole_log(engine, run.id)).decode()
    assert end.exit_code == 0, (end, log)
    return log


async def test_a_job_sees_the_image_and_its_own_folder(engine: LocalEngine, tmp_path: Path) -> None:
    script = """
        cat /etc/os-release; ls /; pwd; ls; cat data; echo
        echo "$HOME $TMPDIR $GREETING $PATH $ISTHMUS_JOB"
        touch /job/x /tmp/x /dev/shm/x && echo writable
        touch /bin/x /etc/x /x 2>/dev/null || echo closed
    """
    lines = (await output(engine, tmp_path, script)).splitlines()
    assert lines[0] == "ID=tiny"
    assert lines[1:9] == ["bin", "dev", "etc", "job", "proc", "run", "sys", "tmp"]
    assert lines[9:] == ["/job", "data", "sent along", "/job /tmp hello there /opt/bin:/bin j", "writable", "closed"]


async def test_the_job_has_its_account_and_no_rights(engine: LocalEngine, tmp_path: Path) -> None:
    script = "cat /proc/self/status; chroot / true 2>&1; echo; cat /proc/1/root/etc/os-release 2>&1 | cat"
    text = await output(engine, tmp_path, script, oci_archive([busybox_layer(), layer(link("bin/chroot", "busybox"))]))
    status = dict(line.split(":", 1) for line in text.splitlines() if ":\t" in line)
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapInh"], 16) == 0
    assert int(status["CapAmb"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    uid = ACCOUNT.uid if IS_ROOT else os.getuid()
    assert status["Uid"].split() == [str(uid)] * 4
    if IS_ROOT:
        assert (status["Gid"].split(), status["Groups"].split()) == ([str(uid)] * 4, [])
    assert "not permitted" in text
    assert "debian" not in text.lower()


async def test_scripts_outputs_and_ends_are_as_without_an_image(engine: LocalEngine, tmp_path: Path) -> None:
    files = FolderSource(tmp_path / "sent", {"image.tar": TINY})
    script = "#!/bin/sh\necho made by $1 > out.txt\nexit 3\n"
    run = Run(new_run_id(), "n", "j", script=script, args=("me",), account=ACCOUNT, image="oci-archive:image.tar")
    await engine.submit(run, files)
    assert (await wait_ended(engine, run.id)).exit_code == 3
    sink = MemorySink()
    await engine.collect(run.id, ["*"], sink)
    assert sink.files == {"out.txt": b"made by me\n"}
    missing = Run(new_run_id(), "n", "j", ("nosuch",), account=ACCOUNT, image="oci-archive:image.tar")
    await engine.submit(missing, files)
    assert (await wait_ended(engine, missing.id)).reason is EndReason.START_FAILED
    long = image_run("sleep 1000", time_limit=1.0)
    await engine.submit(long, files)
    assert (await wait_ended(engine, long.id)).reason is EndReason.TIME_LIMIT
    cancelled = image_run("sleep 1000")
    await engine.submit(cancelled, files)
    await engine.cancel(cancelled.id, grace=0)
    assert (await wait_ended(engine, cancelled.id)).reason is EndReason.CANCELLED


async def test_an_oci_layout_sent_along(engine: LocalEngine, tmp_path: Path) -> None:
    blobs, manifest = oci_blobs([busybox_layer()])
    files = {f"layout/{name}": content for name, content in oci_files(blobs, [manifest]).items()}
    run = image_run("ls; cat /etc/os-release", "oci:layout")
    await engine.submit(run, FolderSource(tmp_path / "sent", {**files, "data": b"1"}))
    await wait_ended(engine, run.id)
    assert await whole_log(engine, run.id) == b"data\nID=tiny\n"


async def test_many_jobs_unpack_it_once(engine: LocalEngine, tmp_path: Path, root: Path) -> None:
    files = FolderSource(tmp_path / "sent", {"image.tar": TINY})
    runs = [image_run("cat /etc/os-release", milli_cpus=100) for _ in range(12)]
    await asyncio.gather(*(engine.submit(run, files) for run in runs))
    for run in runs:
        assert (await wait_ended(engine, run.id)).exit_code == 0
    assert len(list((root / "images/roots").iterdir())) == 1
    assert list((root / "images/staging").iterdir()) == []


async def test_links_and_programs_of_an_image_lead_nowhere(make_engine: MakeEngine, tmp_path: Path) -> None:
    """Whatever is mounted or run by us is not what a hostile image puts in its place."""
    outside = tmp_path / "outside"
    outside.mkdir()
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "f").write_text("shown")
    engine = await make_engine(visible=(shown,))
    top = str(tmp_path).split("/")[1]
    evil = layer(
        *(link(name, f"/oldroot{outside}") for name in ("job", "run", "proc", "sys", "dev", "tmp", "var", top)),
        link("etc", f"/oldroot{outside}"),
        link("image", f"/oldroot{outside}"),
        member("usr/bin/setpriv", b"#!/bin/sh\necho evil as $(id -u)\n", mode=0o755),
        member("usr/sbin/chroot", b"#!/bin/sh\necho evil as $(id -u)\n", mode=0o755),
    )
    log = await output(
        engine, tmp_path, "pwd; touch x /tmp/y; ls /proc/self/exe; cat data", oci_archive([busybox_layer(), evil])
    )
    assert log == "/job\n/proc/self/exe\nsent along"
    assert list(outside.iterdir()) == []
    log = await output(engine, tmp_path, f"cat {shown}/f; cat {shown}/g || echo none")
    assert log.startswith("shown")


async def test_an_image_preloads_nothing_into_what_starts_the_job(engine: LocalEngine, tmp_path: Path) -> None:
    evil = layer(folder("etc"), member("etc/ld.so.preload", b"/evil.so\n"), member("evil.so", b"\x7fELF evil"))
    assert await output(engine, tmp_path, "echo fine", oci_archive([busybox_layer(), evil])) == "fine\n"


async def test_devices_are_passed(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = await make_engine(devices=(DeclaredDevices("board", 1, ("/dev/null",)),))
    assert await output(engine, tmp_path, "echo x > /dev/null && echo yes", devices={"board": 1}) == "yes\n"


@pytest.mark.parametrize(
    ("image", "content", "why"),
    [
        ("oci-archive:other.tar", TINY, "not among the files"),
        ("oci-archive:image.tar", TINY[:5000], "cannot be used"),
        ("oci-archive:image.tar", oci_archive([layer(member("f"))]), "no /bin/sh"),
        ("oci-archive:image.tar", oci_archive([busybox_layer()], architecture="sparc"), "made for sparc"),
        (
            "oci-archive:image.tar",
            oci_archive([busybox_layer(), layer(*(folder(f"d{n}") for n in range(300)))]),
            "at its top",
        ),
        ("oci-archive:../image.tar", TINY, "not the name of an image"),
        ("No Image", TINY, "not the name of an image"),
    ],
)
async def test_bad_images_are_refused(
    engine: LocalEngine, tmp_path: Path, root: Path, image: str, content: bytes, why: str
) -> None:
    run = image_run("true", image)
    with pytest.raises(EngineRefused, match=why):
        await engine.submit(run, FolderSource(tmp_path / "sent", {"image.tar": content}))
    assert list((root / "staging").rglob(f"{run.id}*")) == []
    assert await engine.observe(run.id) is None


async def test_without_a_sandbox_no_images_are_run(make_engine: MakeEngine, open_folder: Path) -> None:
    engine = await make_engine(root=open_folder, isolation="None")
    assert not engine.capabilities.images
    assert "switch off" in (await engine.probe(())).features["images"]
    with pytest.raises(EngineRefused, match="runs no container images: they need the sandbox"):
        engine.check(image_run("true"))


async def test_the_site_says_what_runs_images(engine: LocalEngine) -> None:
    assert engine.capabilities.images
    assert engine.capabilities.image_files
    assert (await engine.probe(())).features["images"].startswith("bubblewrap 0")


async def test_what_a_run_uses_stays_and_what_none_does_goes(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine = await make_engine(max_image_bytes=BUSYBOX.stat().st_size * 3 // 2)
    going = image_run("while [ ! -e stop ]; do sleep 0.1; done; cat /etc/os-release")
    await engine.submit(going, FolderSource(tmp_path / "sent", {"image.tar": TINY}))
    for number in range(2):
        other = oci_archive([busybox_layer(), layer(member("f", bytes([number]) * 100))])
        await output(engine, tmp_path, "true", other)
    roots = tmp_path / "site/images/roots"
    assert len(list(roots.iterdir())) == 2
    (tmp_path / "site/runs" / going.id / "work/stop").touch()
    assert (await wait_ended(engine, going.id)).exit_code == 0
    assert await whole_log(engine, going.id) == b"ID=tiny\n"
    await output(engine, tmp_path, "true", oci_archive([busybox_layer(), layer(member("g"))]))
    assert len(list(roots.iterdir())) == 1
