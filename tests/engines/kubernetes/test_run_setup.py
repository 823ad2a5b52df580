"""What a run has beside its pod: the account for its image, and Python packages, on a real cluster."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from isthmus.engines.base import EndReason
from isthmus.engines.environment_words import PythonSetup
from isthmus.engines.kubernetes import pods
from isthmus.engines.kubernetes.driver import KubernetesEngine
from isthmus.engines.kubernetes.pull_secrets import secret
from isthmus.errors import NotFound, SiteUnavailable
from isthmus.images.logins import RegistryLogin
from isthmus.kubernetes import kubeconfigs
from isthmus.kubernetes.client import KubernetesClient
from isthmus.lab.kubernetes.cluster import KubernetesLab
from isthmus.testing.engines import until, wait_ended, wait_log_has, whole_log

from .test_exactly_once import run_of

pytestmark = [pytest.mark.real, pytest.mark.kubernetes, pytest.mark.anyio]
LOGIN = RegistryLogin("owner", "registry.example.org", "ada", "hunter2-password")
SECRETS = "/api/v1/namespaces/isthmus/secrets"


async def found(lab: KubernetesLab, run_id: str) -> Any:
    """The Secret of a run, as an administrator sees it; None if there is none."""
    async with KubernetesClient(kubeconfigs.load(lab.place.kubeconfig, None), 30.0) as client:
        try:
            return await client.get(f"{SECRETS}/{pods.name_of(run_id)}")
        except NotFound:
            return None


async def test_an_account_is_there_while_the_run_is(
    engine: KubernetesEngine, lab: KubernetesLab, caplog: pytest.LogCaptureFixture
) -> None:
    run = replace(run_of("echo begun; while [ ! -e go ]; do sleep 0.1; done"), login=LOGIN)
    await engine.submit(run)
    await wait_log_has(engine, run.id, b"begun\n")
    made = await found(lab, run.id)
    assert made["type"] == "kubernetes.io/dockerconfigjson"
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    said = json.loads(base64.b64decode(made["data"][".dockerconfigjson"]))
    assert base64.b64decode(said["auths"]["registry.example.org"]["auth"]) == b"ada:hunter2-password"
    with pytest.raises(SiteUnavailable, match="cannot get"):
        await engine.client.get(f"{SECRETS}/{pods.name_of(run.id)}")
    await engine.cancel(run.id, grace=0)
    await wait_ended(engine, run.id)
    await engine.tidy(run.id)
    assert await found(lab, run.id) is None
    assert "hunter2" not in caplog.text


async def test_it_goes_with_its_pod_and_with_what_was_never_sent(engine: KubernetesEngine, lab: KubernetesLab) -> None:
    run = replace(run_of("sleep 1000"), login=LOGIN)
    await engine.submit(run)
    await engine.cancel(run.id, grace=0)

    async def gone() -> bool:
        return await found(lab, run.id) is None

    await until(gone, "the cluster to remove the Secret with its pod")
    # Killed after the Secret, before the pod: the same again finds it, and so does cancelling.
    other = replace(run_of("echo done"), login=LOGIN)
    await engine.client.create(SECRETS, secret(other.id, LOGIN, engine._settings.site))
    await engine.submit(replace(other, login=replace(LOGIN, password="another")))
    assert (await wait_ended(engine, other.id)).exit_code == 0
    third = run_of("echo never")
    await engine.client.create(SECRETS, secret(third.id, LOGIN, engine._settings.site))
    await engine.cancel(third.id)
    assert await found(lab, third.id) is None


async def test_packages_in_an_image_without_python(engine: KubernetesEngine) -> None:
    run = replace(run_of("echo never"), python=PythonSetup(("numpy",)))
    await engine.submit(run)
    end = await wait_ended(engine, run.id)
    assert (end.reason, "no Python 3 here" in end.message) == (EndReason.START_FAILED, True), end
    assert b"no Python 3 here" in await whole_log(engine, run.id)


async def test_a_site_that_may_make_no_secrets_does_without(
    engine: KubernetesEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._secrets, "_path", "/api/v1/namespaces/kube-system/secrets")
    run = replace(run_of("echo done"), login=LOGIN)
    await engine.submit(run)
    assert (await wait_ended(engine, run.id)).exit_code == 0
