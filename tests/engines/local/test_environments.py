"""Environments of Python packages at a local site: whose they are, what is kept, and what jobs cannot do there."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.engines.base import Account, EndReason, Run
from isthmus.engines.environment_words import PythonSetup
from isthmus.engines.local.driver import LocalEngine
from isthmus.testing.engines import (
    EngineTraits,
    EnvironmentContract,
    FolderSource,
    new_run_id,
    wait_ended,
    wait_log_has,
    whole_log,
)
from isthmus.testing.image_archives import busybox_layer, oci_archive
from isthmus.testing.wheels import put_demo, put_wheel

from .conftest import ACCOUNT, OTHER_ACCOUNT, MakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.real]


@pytest.fixture
def wheels(open_folder: Path) -> Path:
    return put_demo(open_folder.parent / "wheels")


@pytest.fixture
async def engine(make_engine: MakeEngine, wheels: Path) -> LocalEngine:
    return await make_engine(visible=(wheels,), wheels=str(wheels))


class TestLocal(EnvironmentContract):
    """In the sandbox, where there is one."""

    traits = EngineTraits(account=ACCOUNT)


def run_with(*packages: str, command: tuple[str, ...] = ("isthmus-demo",), **fields: object) -> Run:
    given = {"namespace": "n", "account": ACCOUNT, "python": PythonSetup(packages), **fields}
    return Run(new_run_id(), job="j", command=command, **given)  # type: ignore[arg-type]


async def output(engine: LocalEngine, run: Run) -> str:
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    log = (await whole_log(engine, run.id)).decode()
    assert end.exit_code == 0, (end, log)
    return log


async def test_tenants_have_their_own_and_see_and_remove_them(engine: LocalEngine, root: Path) -> None:
    for tenant, account in (("n", ACCOUNT), ("m", OTHER_ACCOUNT), ("n", ACCOUNT)):
        look = ("sh", "-c", "ls -d $VIRTUAL_ENV/../*")
        log = await output(engine, run_with("isthmus-demo", command=look, namespace=tenant, account=account))
        assert len([line for line in log.splitlines() if line.startswith("/")]) == 1
    first, second = sorted(await engine.list_images(), key=lambda image: sorted(image.tenants))
    assert (first.tenants, second.tenants) == ({"m"}, {"n"})
    assert first.private and first.bytes > 10_000 and not first.in_use  # noqa: PT018
    assert first.name.startswith("python 3.") and first.name.endswith(": isthmus-demo")  # noqa: PT018
    assert not await engine.remove_image(first.key, "n")
    busy = run_with("isthmus-demo", command=("sh", "-c", "echo ready; sleep 60"), namespace="m", account=OTHER_ACCOUNT)
    await engine.submit(busy)
    await wait_log_has(engine, busy.id, b"ready")
    assert not await engine.remove_image(first.key, "m")
    await engine.cancel(busy.id, grace=0)
    await wait_ended(engine, busy.id)
    assert await engine.remove_image(first.key, "m")
    assert [image.tenants for image in await engine.list_images()] == [{"n"}]
    assert not [
        path for path in (root / "environments").rglob("*") if path.name == "isthmus_demo.py" and "m-" in str(path)
    ]


async def test_what_a_job_puts_there_harms_nobody_else(engine: LocalEngine, root: Path) -> None:
    await output(engine, run_with("isthmus-demo", namespace="m", account=OTHER_ACCOUNT))
    other = next((root / "environments").glob("m-*"))
    script = f"""
        cd /run/environments 2>/dev/null || cd $VIRTUAL_ENV/../..
        k=$(ls ready); chmod -R u+w .
        echo '{{"bytes": -5, "requirements": [["x"], "\\033[2J"]}}' >made/$k-*/environment.json
        mv ready/$k ready/$(echo $k | tr 0-9 a-j); ln -s ../../../made/x ready/{"a" * 40}
        mv locks old; ln -s {other}/locks locks; mv made away; ln -s {other}/made made
    """
    await output(engine, run_with("isthmus-demo", command=("sh", "-c", script)))
    listed = await engine.list_images()
    assert [image.tenants for image in listed] == [{"m"}]
    assert not await engine.remove_image(f"environment:n-{ACCOUNT.uid}/../m-1", None)
    with pytest.raises(OSError, match="directory"):
        await engine.remove_image(f"environment:n-{ACCOUNT.uid}/{'a' * 40}", None)
    assert "demo on base" in await output(engine, run_with("isthmus-demo", namespace="m", account=OTHER_ACCOUNT))


async def test_a_job_cannot_fill_the_disk_through_it(make_engine: MakeEngine, wheels: Path) -> None:
    engine = await make_engine(visible=(wheels,), wheels=str(wheels), max_image_bytes=40 * 2**20)
    fill = "cd $VIRTUAL_ENV/../..; while :; do dd if=/dev/zero of=f bs=1M count=100 2>/dev/null; sleep 0.1; done"
    run = run_with("isthmus-demo", command=("sh", "-c", fill))
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert (end.reason, "Environments" in end.message) == (EndReason.DISK_LIMIT, True), end


async def test_the_least_used_goes_when_there_is_no_room(make_engine: MakeEngine, wheels: Path) -> None:
    put_wheel(wheels, "large", {"large.bin": bytes(range(256)) * 4096 * 24})
    put_wheel(wheels, "larger", {"larger.bin": bytes(range(256)) * 4096 * 20})
    engine = await make_engine(visible=(wheels,), wheels=str(wheels), max_image_bytes=50 * 2**20)
    for package in ("large", "isthmus-demo", "larger"):
        await output(engine, run_with(package, command=("true",)))
    assert sorted(image.name.rpartition(" ")[2] for image in await engine.list_images()) == ["isthmus-demo", "larger"]


async def test_in_an_image_without_python_it_says_so(engine: LocalEngine, tmp_path: Path) -> None:
    run = run_with("isthmus-demo", image="oci-archive:image.tar")
    await engine.submit(run, FolderSource(tmp_path / "sent", {"image.tar": oci_archive([busybox_layer()])}))
    end = await wait_ended(engine, run.id)
    assert (end.reason, "no Python 3 here" in end.message) == (EndReason.START_FAILED, True)


async def test_an_index_of_the_site_is_asked(make_engine: MakeEngine) -> None:
    engine = await make_engine(package_index="https://nowhere.invalid/simple")
    run = run_with("isthmus-demo", env={"PIP_RETRIES": "0"}, account=Account(uid=ACCOUNT.uid))
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert end.reason is EndReason.START_FAILED
    assert "nowhere.invalid" in (await whole_log(engine, run.id)).decode()
