"""Runs in images on a real Slurm, whichever way it is reached; and what belongs to such sites alone."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.engines.base import EndReason, Run
from isthmus.engines.slurm.driver import SlurmEngine
from isthmus.engines.slurm.settings import Mapped, RestSettings, SlurmSettings
from isthmus.errors import EngineRefused, SiteUnavailable
from isthmus.images.logins import RegistryLogin
from isthmus.images.runtimes import RUNTIMES, probing
from isthmus.lab.registry.daemon import RegistryLab
from isthmus.lab.registry.layout import USER as REGISTRY_USER
from isthmus.lab.registry.seeding import push
from isthmus.lab.slurm.cluster import SlurmLab
from isthmus.lab.slurm.login import LoginNode
from isthmus.testing.engines import FolderSource, ImageContract, new_run_id, wait_ended, whole_log
from isthmus.testing.engines.imaging import IMAGE, TINY
from isthmus.testing.image_archives import busybox_layer, layer, member, oci_archive, oci_blobs

from .conftest import AKIDA, SSH_USER, USER, MakeEngine, settings_of, ssh_settings

pytestmark = [pytest.mark.anyio, pytest.mark.real]


class TestCommandLine(ImageContract):
    """Slurm's commands on this machine; the first runtime that works."""


class TestSsh(ImageContract):
    """Over SSH: unpacked on the login node, by a Python there."""

    @pytest.fixture
    def settings(self, lab: SlurmLab, login: LoginNode) -> SlurmSettings:
        return replace(ssh_settings(lab, login, service=SSH_USER), image_runtimes=("bubblewrap",))


def image_run(text: str, **fields: object) -> Run:
    return Run(new_run_id(), "n", "j", ("sh", "-c", text), image=IMAGE, **fields)  # type: ignore[arg-type]


def sent(tmp_path: Path, content: bytes = TINY) -> FolderSource:
    return FolderSource(tmp_path / "sent", {"image.tar": content})


@pytest.mark.parametrize("name", ["bubblewrap", "podman", "proot"])
async def test_each_runtime(make_engine: MakeEngine, settings: SlurmSettings, tmp_path: Path, name: str) -> None:
    """The first is tried by the contract. Over slurmrestd as well, which leaves the files to the shared folder."""
    engine = await make_engine(settings, image_runtimes=(name,))
    run = image_run("cat /etc/os-release; echo out >out; trap 'exit 9' TERM; kill -TERM $$; sleep 5")
    await engine.submit(run, sent(tmp_path))
    end = await wait_ended(engine, run.id)
    assert (await whole_log(engine, run.id), end.exit_code) == (b"ID=tiny\n", 9)
    features = (await engine.probe([])).features
    assert features["images"].startswith(f"{name} {'' if name != 'proot' else '5'}")


async def test_over_rest_many_jobs_unpack_it_once_as_the_person(
    make_engine: MakeEngine, lab: SlurmLab, tmp_path: Path
) -> None:
    rest = RestSettings(url=lab.place.rest_url, key_file=lab.place.jwt_key)
    settings = replace(settings_of(lab), transport="REST", rest=rest)
    engine = await make_engine(settings)
    runs = [image_run("cat /etc/os-release") for _ in range(5)]
    await asyncio.gather(*(engine.submit(run, sent(tmp_path)) for run in runs))
    for run in runs:
        await wait_ended(engine, run.id)
        assert await whole_log(engine, run.id) == b"ID=tiny\n"
    own = Path(settings.folder, "images", USER)
    assert len(list((own / "roots").iterdir())) == 1
    assert list((own / "staging").iterdir()) == []
    assert own.owner() == next((own / "roots").iterdir()).owner() == USER
    assert own.stat().st_mode & 0o077 == 0
    assert own.parent.stat().st_mode & 0o022 == 0
    assert not [name for name in os.listdir(Path(settings.folder, "over")) if name.startswith("isthmus-images")]


async def test_a_site_without_a_runtime_says_so_before_a_job_is_sent(
    make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for runtime in RUNTIMES.values():
        monkeypatch.setattr(type(runtime), "program", f"no-{runtime.program}")
    engine = await make_engine()
    assert engine.capabilities.images
    run = image_run("true")
    with pytest.raises(EngineRefused, match="has none of"):
        await engine.submit(run, sent(tmp_path))
    assert not engine.capabilities.images
    assert (await engine.probe([])).features["images"].startswith("none: ")
    assert await engine.observe(run.id) is None


async def test_what_one_persons_job_says_of_the_nodes_counts_for_nobody_else(
    make_engine: MakeEngine, settings: SlurmSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is the first to need a runtime can write what she likes into the log of the job that looks for it."""
    people = (Mapped("mallory", SSH_USER), Mapped("*", USER))
    engine = await make_engine(settings, accounts=people, image_runtimes=("bubblewrap",))
    with monkeypatch.context() as hers:
        hers.setattr(probing, "script", lambda _: "echo isthmus-probe node https://evil.example x86_64; echo lies")
        with pytest.raises(SiteUnavailable, match="being found out"):
            await engine.submit(replace(image_run("true"), namespace="mallory"), sent(tmp_path))
        hers.setattr(
            probing, "script", lambda _: "echo isthmus-probe node lies mips; echo isthmus-probe podman yes 1.0"
        )
        with pytest.raises(EngineRefused, match="has none of"):
            await engine.submit(replace(image_run("true"), namespace="mallory"), sent(tmp_path))
    assert engine.capabilities.images, "others are still sent here"
    run = image_run("cat /etc/os-release")
    engine.check(run)
    await engine.submit(run, sent(tmp_path))
    await wait_ended(engine, run.id)
    assert await whole_log(engine, run.id) == b"ID=tiny\n"
    shown = (await engine.probe([])).features["images"]
    assert shown == "bubblewrap for 1 of 2 accounts that looked; each finds out for itself"
    with pytest.raises(EngineRefused, match="has none of"):
        engine.check(replace(run, namespace="mallory"))


async def test_a_runtime_that_disappears_and_an_image_that_does(
    engine: SlurmEngine, settings: SlurmSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = image_run("true")
    await engine.submit(first, sent(tmp_path))
    assert (await wait_ended(engine, first.id)).exit_code == 0
    with monkeypatch.context() as changed:
        for runtime in RUNTIMES.values():
            changed.setattr(type(runtime), "program", f"no-{runtime.program}")
        gone = image_run("true")
        await engine.submit(gone, sent(tmp_path))
    end = await wait_ended(engine, gone.id)
    assert end.reason is EndReason.START_FAILED
    assert "no container runtime works on" in end.message
    assert "charliecloud is not installed" in end.message
    # What is removed at the site between two jobs is unpacked again.
    roots = Path(settings.folder, "images", USER, "roots")
    next(roots.iterdir()).rename(tmp_path / "removed")
    again = image_run("true")
    await engine.submit(again, sent(tmp_path))
    assert (await wait_ended(engine, again.id)).exit_code == 0


async def test_room(make_engine: MakeEngine, settings: SlurmSettings, tmp_path: Path) -> None:
    """What is larger than may be kept is refused; what was not used for longest goes, never what is in use."""
    base = busybox_layer()
    engine = await make_engine(settings, max_image_bytes=len(base) + 900_000)
    images = [oci_archive([base, layer(member("f", bytes([n]) * 500_000))]) for n in range(3)]
    huge = oci_archive([base, layer(member("f", b"x" * 10**6))])
    with pytest.raises(EngineRefused, match=r"larger than images may be|more than"):
        await engine.submit(image_run("true"), sent(tmp_path, huge))
    own = Path(settings.folder, "images", USER)
    held = image_run("while [ ! -e end ]; do sleep 0.1; done; cat /etc/os-release")
    await engine.submit(held, sent(tmp_path, images[0]))
    kept = {path.name for path in (own / "roots").iterdir()}
    for content in images[1:]:
        run = image_run("true")
        await engine.submit(run, sent(tmp_path, content))
        await wait_ended(engine, run.id)
    left = {path.name for path in (own / "roots").iterdir()}
    assert kept < left
    assert len(left) == 2
    assert list((own / "staging").iterdir()) == []
    Path(settings.folder, "runs", held.id, "work/end").touch()
    assert (await wait_ended(engine, held.id)).exit_code == 0


async def test_a_folder_that_somebody_else_made_is_not_used(
    make_engine: MakeEngine, settings: SlurmSettings, tmp_path: Path
) -> None:
    engine = await make_engine()
    own = Path(settings.folder, "images", USER)
    own.mkdir(parents=True)
    own.chmod(0o777)
    with pytest.raises(SiteUnavailable, match="belongs to somebody else"):
        await engine.submit(image_run("true"), sent(tmp_path))


async def test_libraries_of_a_device_class_come_from_the_node(
    engine: SlurmEngine, lab: SlurmLab, tmp_path: Path
) -> None:
    machine = lab.place.shared / "driver"
    machine.mkdir(exist_ok=True)
    (machine / "libstand-in.so.535").write_text("driver 535")
    spec = AKIDA.spec.model_copy(update={"libraries": [f"{machine}/libstand-in.so*"]})
    await engine.probe([AKIDA.model_copy(update={"spec": spec})])
    run = image_run("echo $LD_LIBRARY_PATH; cat $LD_LIBRARY_PATH/libstand-in.so.535", devices={"akida": 1})
    await engine.submit(run, sent(tmp_path))
    end = await wait_ended(engine, run.id)
    assert (await whole_log(engine, run.id), end.exit_code) == (b"/run/libraries\ndriver 535", 0)


async def test_an_image_of_a_registry_with_accounts(make_engine: MakeEngine, tmp_path: Path) -> None:
    """The control plane fetches it with the account of the run; without one it is refused, though it is there."""
    blobs, manifest = oci_blobs([busybox_layer(), layer(member("etc/secret", b"of A"))])
    registry = RegistryLab(tmp_path / "registry")
    registry.up()
    try:
        with registry.client() as client:
            digest = str(manifest["digest"])
            push(client, "a/tool", "1", {name: part for name, part in blobs.items() if name != digest}, blobs[digest])
        host, password = registry.place.host, registry.place.password.read_text().strip()
        engine = await make_engine(
            registry_authorities=registry.place.authority.read_text(), layers=tmp_path / "layers"
        )
        run = replace(image_run("cat /etc/secret"), image=f"{host}/a/tool@{digest}")
        await engine.submit(replace(run, login=RegistryLogin("a", host, REGISTRY_USER, password)))
        await wait_ended(engine, run.id)
        assert await whole_log(engine, run.id) == b"of A"
        with pytest.raises(EngineRefused, match="isthmus registry login"):
            await engine.submit(replace(run, id=new_run_id()))
    finally:
        registry.down(erase=True)
