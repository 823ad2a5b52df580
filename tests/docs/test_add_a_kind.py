"""CONTRIBUTING's "Add a kind", followed to the letter: after its two steps everything general knows the kind.

Its module is made of the page's own text and registered in this process alone; nothing else is said of it anywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import re
import shlex
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.cli.app import call
from isthmus.cli.completion import complete_kinds
from isthmus.errors import NotFound
from isthmus.reconcilers.sites.registry import EngineRegistry
from isthmus.reconcilers.sweeping import Sweeper
from isthmus.resources.kinds import TENANT, Kind, of_tenants, owners_first, register
from isthmus.resources.schemas.crds import custom_resources
from isthmus.resources.tenants import Tenant
from isthmus.resources.work.trees import Tree, TreeFile
from isthmus.runtime.leading import Sole
from isthmus.server.control_plane import ControlPlane
from isthmus.server.manifests import rights
from isthmus.store.base import Key, Part
from isthmus.store.kubernetes.spaces import contents
from isthmus.store.moving import Importer, check_whole, export_objects
from isthmus.store.opening import open_store
from isthmus.testing.apis import TENANT_NAME, RunningApi, running_api

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
DATASETS = f"/apis/isthmus.dev/v1/namespaces/{TENANT_NAME}/datasets"


def block(language: str) -> str:
    """The one block of a language in the section."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page[page.index("## Add a kind") :].split("\n## ")[0]
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", section, re.DOTALL | re.MULTILINE)
    assert len(found) == 1
    return textwrap.dedent(found[0])


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Kind]:
    """Step 1, and step 2."""
    path = tmp_path / "datasets.py"
    path.write_text(block("python"))
    spec = importlib.util.spec_from_file_location("isthmus.resources.datasets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        with register(module.DATASET) as kind:
            yield kind
    finally:
        del sys.modules[spec.name]


@pytest.fixture
async def api(dataset: Kind, tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(tmp_path) as api:
        yield api


@pytest.fixture
def terminal(api: RunningApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A member at a terminal, in a folder with the page's manifest."""
    (tmp_path / "digits.yaml").write_text(block("yaml"))
    monkeypatch.chdir(tmp_path)
    for name, value in {"URL": api.url, "TOKEN": api.tokens["member"], "NAMESPACE": TENANT_NAME}.items():
        monkeypatch.setenv(f"ISTHMUS_{name}", value)
    return tmp_path


async def said(*words: str) -> str:
    """What the command line writes."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert await asyncio.to_thread(call, list(words)) == 0
    return out.getvalue()


def manifest(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(block("yaml"))
    found["spec"] |= spec
    return found


async def create(api: RunningApi, **spec: Any) -> dict[str, Any]:
    async with api.client() as http:
        answer = await http.post(DATASETS, json=manifest(**spec))
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.usefixtures("terminal")
async def test_the_commands_of_the_page_say_what_it_says() -> None:
    lines = block("console").splitlines()
    for at, line in enumerate(lines):
        if line.startswith("$ isthmus "):
            wanted = [other for other in lines[at + 1 :] if not other.startswith("$ ")][:1]
            assert (await said(*shlex.split(line.removeprefix("$ isthmus ")))).splitlines() == wanted


async def test_it_is_served_listed_and_described(api: RunningApi) -> None:
    await create(api)
    async with api.client() as http:
        (listed,) = (await http.get(DATASETS)).json()["items"]
        assert listed["spec"]["files"]["count"] == 3
        assert (await http.get(DATASETS, params={"fieldSelector": "metadata.name=other"})).json()["items"] == []
        table = (await http.get(DATASETS, headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"})).json()
        assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Files", "Age"]
        assert table["rows"][0]["cells"][:2] == ["digits", 3]
        offered = (await http.get("/apis/isthmus.dev/v1")).json()["resources"]
        assert {"datasets", "datasets/status"} <= {entry["name"] for entry in offered}
        whole = (await http.get("/openapi.json")).json()
        assert "DatasetSpec" in whole["components"]["schemas"]
        assert DATASETS.replace(TENANT_NAME, "{namespace}") in whole["paths"]
        assert '"kind":"DatasetList"' in (await http.get("/openapi/v3/apis/isthmus.dev/v1")).text


async def test_it_is_authorised(api: RunningApi) -> None:
    await create(api)
    one = f"{DATASETS}/digits"
    wanted = {"admin": (200, 200), "member": (200, 200), "viewer": (200, 403), "stranger": (403, 403)}
    for who, codes in wanted.items():
        async with api.client(who, {"Content-Type": "application/merge-patch+json"}) as http:
            change = {"spec": {"description": f"seen by {who}"}}
            assert ((await http.get(one)).status_code, (await http.patch(one, json=change)).status_code) == codes
            review = {"spec": {"namespace": TENANT_NAME}}
            found = await http.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", json=review,
                                    headers={"Content-Type": "application/json"})  # fmt: skip
            reported = {rule["resources"][0] for rule in found.json()["status"]["resourceRules"]}
            assert ("datasets" in reported or "*" in reported) == (codes[0] == 200)


async def test_only_what_may_change_does(api: RunningApi) -> None:
    await create(api)
    async with api.client(headers={"Content-Type": "application/merge-patch+json"}) as http:
        assert (await http.patch(f"{DATASETS}/digits", json={"spec": {"sites": ["here"]}})).status_code == 200
        refused = await http.patch(f"{DATASETS}/digits", json={"spec": {"files": {"count": 4}}})
    assert refused.status_code == 422
    assert "spec.files" in refused.json()["message"]


async def test_it_moves_from_store_to_store(api: RunningApi, dataset: Kind, tmp_path: Path) -> None:
    """With the uid of the job that it refers to, which is another one there."""
    job = await api.create_job("maker")
    made = await api.context.store.get(Key("Dataset", TENANT_NAME, (await create(api))["metadata"]["name"]))
    await api.context.store.update(dataset, {**made.obj, "status": {"madeBy": job.uid}}, Part.STATUS)
    assert owners_first().index(dataset) > [kind.name for kind in owners_first()].index("Job")
    objects = check_whole([obj async for obj in export_objects(api.context.store)])
    store = await open_store(tmp_path / "other.db")
    try:
        assert (await Importer(store).run(objects)).refused == []
        there = await store.get(Key("Dataset", TENANT_NAME, "digits"))
        assert there.obj["status"]["madeBy"] == (await store.get(Key("Job", TENANT_NAME, "maker"))).uid != job.uid
    finally:
        await store.close()


async def test_its_files_are_kept_from_the_sweeper(api: RunningApi, tmp_path: Path) -> None:
    trees = []
    for text in ("kept", "unused"):
        (tmp_path / text).write_text(text)
        digest, size = await api.blobs.put_file(TENANT_NAME, tmp_path / text)
        tree = Tree(files=[TreeFile(path="f", digest=digest, size=size)])
        trees.append((await api.blobs.put_tree(TENANT_NAME, tree), digest))
    kept, unused = trees
    await create(api, files={"tree": kept[0], "count": 1})
    await Sweeper(api.context.store, api.blobs, Sole()).sweep(unused_for=-10)
    assert set(await api.blobs.missing(TENANT_NAME, [*kept, *unused])) == set(unused)


async def test_it_goes_with_its_tenant(api: RunningApi, dataset: Kind) -> None:
    await create(api)
    assert dataset in of_tenants()
    store = api.context.store

    def no_engine(*_: object) -> Any:
        raise AssertionError("there is no site")

    plane = ControlPlane(
        store=store, blobs=api.blobs, engines=EngineRegistry(), make_engine=no_engine, leadership=Sole()
    )
    reconciling = asyncio.create_task(plane.run())
    try:
        async with asyncio.timeout(60):
            while not (await store.get(Key(TENANT.name, "", TENANT_NAME))).obj["metadata"].get("finalizers"):
                await asyncio.sleep(0.05)
            await store.delete(Key(TENANT.name, "", TENANT_NAME))
            with contextlib.suppress(NotFound):
                while await store.get(Key(TENANT.name, "", TENANT_NAME)):
                    await asyncio.sleep(0.05)
    finally:
        reconciling.cancel()
        await asyncio.gather(reconciling, return_exceptions=True)
    with pytest.raises(NotFound) as gone:
        await store.get(Key("Dataset", TENANT_NAME, "digits"))
    assert (gone.value.kind, gone.value.namespace, gone.value.name) == ("Dataset", TENANT_NAME, "digits")


@pytest.mark.usefixtures("terminal")
async def test_the_command_line_knows_it(api: RunningApi) -> None:
    await create(api)
    assert (await said("datasets")).split()[:5] == ["NAME", "FILES", "AGE", "digits", "3"]
    assert (await said("get", "dataset", "digits")).split()[:5] == ["NAME", "FILES", "AGE", "digits", "3"]
    assert "datasets" in await said("--help")
    assert complete_kinds("da") == ["datasets"]
    assert await said("delete", "dataset/digits") == "dataset/digits deleted\n"
    await create(api)
    with pytest.raises(NotFound) as refused:
        await asyncio.to_thread(call, ["get", "dataset", "digit"])
    listing = f"`isthmus datasets -n {TENANT_NAME}` lists them"
    reported = f"there is no dataset digit in tenant {TENANT_NAME}; did you mean digits? {listing}"
    assert refused.value.message == reported


async def test_the_console_shows_it(api: RunningApi) -> None:
    await create(api)
    async with api.client("", {"Accept": "text/html"}) as browser:
        page = (await browser.get("/console/sign-in")).text
        code = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
        assert code
        await browser.post("/console/sign-in", data={"csrf": code[1], "token": api.tokens["member"]})
        listed = await browser.get("/console/datasets")
        assert (listed.status_code, '<a href="/console/datasets" aria-current="page">' in listed.text) == (200, True)
        assert "<span>Data sets</span>" in listed.text
        assert f'href="/console/datasets/{TENANT_NAME}/digits"' in listed.text
        shown = await browser.get(f"/console/datasets/{TENANT_NAME}/digits")
        assert (shown.status_code, "kind: Dataset" in unescape(shown.text)) == (200, True)
        assert (await browser.get(f"/console/datasets/{TENANT_NAME}/other")).status_code == 404
        assert (await browser.get("/console/nothings")).status_code == 404


def test_kubernetes_and_the_reference_know_it(dataset: Kind) -> None:
    (definition,) = [made for made in custom_resources() if made["metadata"]["name"] == dataset.resource]
    assert definition["spec"]["names"]["shortNames"] == ["idata"]
    (role,) = [obj for obj in rights() if obj["kind"] == "ClusterRole"]
    assert {"datasets", "datasets/status"} <= {name for rule in role["rules"] for name in rule["resources"]}
    tenant = Tenant.model_validate({"metadata": {"name": "t"}})
    verbs = {
        obj["metadata"]["name"]: {
            verb for rule in obj["rules"] if "datasets" in rule["resources"] for verb in rule["verbs"]
        }
        for _, obj in contents(tenant)
        if obj["kind"] == "Role"
    }
    assert "create" not in verbs["isthmus-viewer"]
    assert {"get", "create"} <= verbs["isthmus-member"] == verbs["isthmus-admin"]
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert "## Dataset\n" in generate.kinds_page()
    assert '"datasets",' in generate.known_kinds()
