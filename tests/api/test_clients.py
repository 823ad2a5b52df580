"""The Python clients of Kubernetes, unchanged, against the real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kr8s
import pytest
from kr8s.asyncio.objects import new_class
from kubernetes.client.exceptions import ApiException

from isthmus.testing.kubectl import write_kubeconfig
from kubernetes import client as k8s
from kubernetes import dynamic, watch

pytestmark = [
    pytest.mark.real,
    # kr8s closes a client in a finalizer, and the other client uses what newer Pythons call deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

GROUP = ("isthmus.dev", "v1", "physics", "jobs")


def job(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "isthmus.dev/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "physics", "labels": {"made": "by-client"}},
        "spec": {"command": ["true"]},
    }


@pytest.fixture(scope="module")
def api(platform: Any) -> Iterator[k8s.ApiClient]:
    configuration = k8s.Configuration(host=platform.url)
    configuration.api_key = {"authorization": f"Bearer {platform.token('root', 'admin')}"}
    with k8s.ApiClient(configuration) as made:
        yield made


def test_custom_objects(api: k8s.ApiClient, platform: Any) -> None:
    objects = k8s.CustomObjectsApi(api)
    made = objects.create_namespaced_custom_object(*GROUP, job("custom"))
    assert made["status"]["phase"] == "Pending"
    assert objects.get_namespaced_custom_object(*GROUP, "custom")["metadata"]["uid"] == made["metadata"]["uid"]
    listed = objects.list_namespaced_custom_object(*GROUP, label_selector="made=by-client")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["custom"]
    patched = objects.patch_namespaced_custom_object(*GROUP, "custom", {"spec": {"priority": 4}})
    assert patched["spec"]["priority"] == 4
    patched["spec"]["priority"] = 5
    assert objects.replace_namespaced_custom_object(*GROUP, "custom", patched)["spec"]["priority"] == 5
    with pytest.raises(ApiException) as caught:
        objects.replace_namespaced_custom_object(*GROUP, "custom", patched)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    status = objects.patch_namespaced_custom_object_status(*GROUP, "custom", {"status": {"phase": "Running"}})
    assert status["status"]["phase"] == "Running"
    assert objects.delete_namespaced_custom_object(*GROUP, "custom")["status"] == "Success"
    with pytest.raises(ApiException) as caught:
        objects.get_namespaced_custom_object(*GROUP, "custom")
    assert caught.value.status == 404
    assert objects.list_cluster_custom_object("isthmus.dev", "v1", "sites")["items"]


def test_watch_stream(api: k8s.ApiClient) -> None:
    objects = k8s.CustomObjectsApi(api)
    version = objects.list_namespaced_custom_object(*GROUP)["metadata"]["resourceVersion"]
    seen: list[tuple[str, str]] = []
    watcher = watch.Watch()

    def make() -> None:
        objects.create_namespaced_custom_object(*GROUP, job("streamed"))
        objects.delete_namespaced_custom_object(*GROUP, "streamed")

    thread = threading.Thread(target=make)
    thread.start()
    for event in watcher.stream(
        objects.list_namespaced_custom_object, *GROUP, resource_version=version, timeout_seconds=60
    ):
        seen.append((event["type"], event["object"]["metadata"]["name"]))
        if len(seen) == 2:
            watcher.stop()
    thread.join()
    assert seen == [("ADDED", "streamed"), ("DELETED", "streamed")]


def test_core_and_reviews(api: k8s.ApiClient) -> None:
    names = {item.metadata.name for item in k8s.CoreV1Api(api).list_namespace().items}
    assert {"physics", "chemistry"} <= names
    k8s.CoreV1Api(api).list_namespaced_event("physics")
    assert k8s.VersionApi(api).get_code().major == "1"
    attributes = k8s.V1ResourceAttributes(group="isthmus.dev", resource="jobs", verb="create", namespace="physics")
    review = k8s.V1SelfSubjectAccessReview(spec=k8s.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes))
    assert k8s.AuthorizationV1Api(api).create_self_subject_access_review(review).status.allowed


def test_dynamic_client(api: k8s.ApiClient) -> None:
    found = dynamic.DynamicClient(api)
    jobs = found.resources.get(api_version="isthmus.dev/v1", kind="Job")
    assert jobs.namespaced
    made = jobs.create(body=job("dynamic"), namespace="physics")
    assert made.status.phase == "Pending"
    changed = jobs.patch(
        name="dynamic", namespace="physics", body={"spec": {"priority": 9}}, content_type="application/merge-patch+json"
    )
    assert changed.spec.priority == 9
    wanted = job("dynamic") | {"metadata": {"labels": {"a": "b"}}}
    applied = jobs.server_side_apply(name="dynamic", namespace="physics", body=wanted, field_manager="t")
    assert applied.metadata.labels.a == "b"
    assert jobs.get(namespace="physics", name="dynamic").spec.priority == 9
    jobs.delete(name="dynamic", namespace="physics")
    assert [job.metadata.name for job in jobs.get(namespace="physics").items if job.metadata.name == "dynamic"] == []


def test_kr8s(platform: Any, tmp_path: Path) -> None:
    secret = platform.token("root", "admin")
    config = write_kubeconfig(tmp_path / "config", platform.url, secret, "physics")
    config.write_text(config.read_text().replace(f"isthmus:{secret}@", ""))

    async def main() -> None:
        api = await kr8s.asyncio.api(kubeconfig=str(config))
        assert (await api.version())["major"] == "1"
        made_class = new_class(kind="Job", version="isthmus.dev/v1", namespaced=True, plural="jobs")
        made = await made_class(job("kr8s"), api=api)
        await made.create()
        await made.patch({"spec": {"priority": 2}})
        await made.refresh()
        assert made.raw["spec"]["priority"] == 2
        await made.label({"one": "two"})
        found = [item.name async for item in api.get(made_class, namespace="physics", label_selector="one=two")]
        assert found == ["kr8s"]
        seen = []
        watching = api.watch(made_class, namespace="physics", field_selector="metadata.name=kr8s")
        async for kind, _ in watching:
            seen.append(kind)
            if kind == "ADDED":
                await made.delete()
            if kind == "DELETED":
                break
        await watching.aclose()
        assert seen[-1] == "DELETED"
        assert not await made.exists()
        assert [site.name async for site in api.get("sites.isthmus.dev")] == ["here"]
        await api._session.aclose()

    asyncio.run(main())
